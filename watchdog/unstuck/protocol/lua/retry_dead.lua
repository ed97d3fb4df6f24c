#!lua
-- Put one dead (or quarantined and mended) job back into pending; the only thing that resets failures and rescues.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 op
-- returns {'retried' | 'not_dead' | 'missing', state it is in now}
--@include common
--@include placing
local id, op = ARGV[1], ARGV[2]
local refused = version_error()
if refused then return refused end
local _, _, at = clock()
local job = stem .. 'job:' .. id
local body = redis.call('HMGET', job, 'state', 'payload', 'retry_op', 'version', 'attempt')
check_places()
if not body[1] then return {'missing', ''} end
if body[3] == op then return {'retried', 'pending'} end
if body[1] ~= 'dead' and body[1] ~= 'quarantine' then return {'not_dead', body[1]} end
if not body[2] then return {'missing', body[1]} end
local version = integer(body[4])
if not version or not integer(body[5]) then
  return redis.error_reply('UNSTUCKNUMBER ' .. job .. ' version or attempt')
end
to_pending(id, job, at, 'LPUSH')
redis.call('HSET', job, 'failures', 0, 'rescues', 0, 'version', whole(version + 1))
redis.call('HDEL', job, 'cause', 'died_at', 'error')
redis.call('ZREM', stem .. 'dead', id)
if body[1] == 'quarantine' then redis.call('LREM', stem .. 'quarantine', 0, id) end
redis.call('HSET', job, 'retry_op', op)
note('retried', id, '', '', 'by hand')
return {'retried', 'pending'}
