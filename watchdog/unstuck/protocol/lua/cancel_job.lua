#!lua
-- Cancel: a waiting job is buried (cause cancelled); a running attempt is told, over its worker's channel and in the
-- answer of its next heartbeat; its lock is never touched.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 op  3 dead_max  4 dead_ttl_ms
-- returns {'dead' | 'told' | 'ended' | 'missing', state it is in now}
--@include common
--@include ending
--@include placing
local id, op = ARGV[1], ARGV[2]
local refused = version_error()
if refused then return refused end
if not valid(id) then return refuse_name('job id', id) end
local most, keep = integer(ARGV[3]), integer(ARGV[4])
if not most or not keep then return redis.error_reply('UNSTUCKVALUE dead_max or dead_ttl_ms') end
local now, micros = clock()
local job = stem .. 'job:' .. id
local body = redis.call('HMGET', job, 'state', 'token', 'worker', 'cancel_op')
local stamp, bad = next_stamp(micros)
if bad then return bad end
check_places()
local counters, err = read_counters({'dead', 'dead_dropped', 'unheard'})
if err then return err end
local state = body[1]
if not state then return {'missing', ''} end
if body[4] == op .. ' told' then return {'told', 'active'} end
if body[4] == op .. ' dead' then return {'dead', 'dead'} end
if state == 'active' then
  redis.call('HSET', job, 'cancelled_at', now, 'cancel_op', op .. ' told')
  if body[3] and valid(body[3]) then
    redis.call('SPUBLISH', stem .. 'control:' .. body[3], '{"cancel":"' .. id .. '","token":"' .. (body[2] or '') .. '"}')
  end
  note('cancel_asked', id, body[3] or '', body[2] or '', '')
  return {'told', state}
end
if state ~= 'pending' and state ~= 'scheduled' then return {'ended', state} end
local dropped = to_dead(id, job, now, 'cancelled', most, keep)
if state == 'pending' then redis.call('LREM', stem .. 'pending', 0, id)
else redis.call('ZREM', stem .. 'scheduled', id) end
redis.call('HSET', job, 'cancel_op', op .. ' dead')
redis.call('UNLINK', stem .. 'cache:' .. id)
invalidate(id, 'dead', stamp)
redis.call('HSET', stem .. 'stats', 'dead', whole(counters[1] + 1), 'dead_dropped', whole(counters[2] + dropped),
  'unheard', whole(counters[3] + unheard))
note('dead_lettered', id, '', '', 'cancelled')
return {'dead', 'dead'}
