#!lua flags=allow-oom
-- Claim the next job: promotes up to 100 due ones, quarantines at most 10 bad ids, then makes one attempt current.
-- Works while Redis is out of memory, so that a full Redis can drain. An empty answer is not remembered: it had no effect.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot  3 op  4 nonce (16 hex)  5 lock (ttl|none)  6 lock_ttl_ms  7 heartbeat_ms  8 abort_after_ms
-- returns {'job', id, token, attempt, payload, now_ms, rescues, failures, expected_by or '', version}
--       | {'empty', next_due_ms or -1, now_ms} | {'again', quarantined, now_ms} | {'lost', id, now_ms} (a replayed claim
--         whose attempt has meanwhile been taken away)
--@include common
--@include buckets
--@include raising
--@include starting
local worker, slot, op, nonce, lock = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lock_ttl, beat, abort_after = integer(ARGV[6]), integer(ARGV[7]), integer(ARGV[8])
local refused = version_error()
if refused then return refused end
if not valid(worker) then return refuse_name('worker', worker) end
if #nonce ~= 16 or not find(nonce, '^%x+$') then return redis.error_reply('UNSTUCKVALUE nonce ' .. nonce) end
if not lock_ttl or lock_ttl < 1 or not beat or beat < 1 or not abort_after or abort_after < 1
  or (lock ~= 'ttl' and lock ~= 'none') then
  return redis.error_reply('UNSTUCKVALUE lock, lock_ttl_ms, heartbeat_ms or abort_after_ms')
end
local now, _, at = clock()

local earlier = recalled(worker, slot, op)
if earlier then return repeat_claim(earlier, now) end

-- Everything that may refuse, before the first write.
local pending, scheduled = stem .. 'pending', stem .. 'scheduled'
local id = call('LINDEX', pending, '-1')
local first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
local due = first[2] and tonumber(first[2]) or nil
if not id and (not due or due > now) then
  call('DEL', stem .. 'wake')
  return {'empty', due and whole(due) or -1, now}
end
call('ZCARD', stem .. 'active')
call('ZCARD', stem .. 'started')
call('ZCARD', stem .. 'deadlines')
call('SCARD', stem .. 'held:' .. worker)
local seen = call('ZSCORE', stem .. 'workers', worker)
call('LLEN', stem .. 'quarantine')
call('XLEN', stem .. 'events')
call('HLEN', stem .. 'stats')

if due and due <= now then
--@include placing
--@include promoting
  call('LLEN', stem .. 'wake')
  promote(at, 100)
  id = call('LINDEX', pending, '-1')
end

local bad = 0
while true do
  if not id then
    call('DEL', stem .. 'wake')
    first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
    return {'empty', first[2] and whole(tonumber(first[2])) or -1, now}
  end
  local body, why = read_job(id)
  if why then
--@include placing
    to_quarantine(id, stem .. 'job:' .. id, why)
    call('RPOP', pending)
    bad = bad + 1
  elseif body[STATE] ~= 'pending' then
    call('RPOP', pending)
    note('duplicate_dropped', id, '', '', 'was ' .. body[STATE] .. ', found in pending')
    bad = bad + 1
  else
    local delay = math.max(0, now - body[READY_AT])
    local err = raise({'started', 'delay_ms', bucket('delay_le_', delay)}, {1, delay, 1})
    if err then return err end
    local answer, kept = start_attempt(id, body, worker, nonce, lock, ARGV[6], ARGV[7], ARGV[8], now, at)
    if not seen or tonumber(seen) < now - 1000 then call('ZADD', stem .. 'workers', at, worker) end
    remember(worker, slot, op, kept)
    return answer
  end
  if bad >= 10 then return {'again', bad, now} end
  id = call('LINDEX', pending, '-1')
end
