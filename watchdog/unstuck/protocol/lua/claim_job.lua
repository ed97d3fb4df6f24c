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
local worker, slot, op, nonce, lock = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lock_ttl, beat, abort_after = integer(ARGV[6]), integer(ARGV[7]), integer(ARGV[8])
local refused = version_error()
if refused then return refused end
if not valid(worker) then return refuse_name('worker', worker) end
if #nonce ~= 16 or string.find(nonce, '[^%x]') then return redis.error_reply('UNSTUCKVALUE nonce ' .. nonce) end
if not lock_ttl or lock_ttl < 1 or not beat or beat < 1 or not abort_after or abort_after < 1
  or (lock ~= 'ttl' and lock ~= 'none') then
  return redis.error_reply('UNSTUCKVALUE lock, lock_ttl_ms, heartbeat_ms or abort_after_ms')
end
local now, _, at = clock()

local FIELDS = {'state', 'payload', 'attempt', 'rescues', 'failures', 'ready_at', 'expected_ms', 'version', 'token',
  'expected_by'}
local earlier = recalled(worker, slot, op)
if earlier then
  local id, token, attempt = string.match(earlier, '^(%S+) (%S+) (%d+)$')
  local was = redis.call('HMGET', stem .. 'job:' .. id, unpack(FIELDS))
  if was[1] ~= 'active' or was[9] ~= token then return {'lost', id, now} end
  return {'job', id, token, tonumber(attempt), was[2], now, integer(was[4]) or 0, integer(was[5]) or 0,
    was[10] or '', integer(was[8]) or 0}
end

-- Everything that may refuse, before the first write.
local pending, scheduled = stem .. 'pending', stem .. 'scheduled'
local id = redis.call('LINDEX', pending, -1)
local first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local due = first[2] and tonumber(first[2]) or nil
redis.call('LLEN', stem .. 'wake')
if not id and (not due or due > now) then
  redis.call('DEL', stem .. 'wake')
  return {'empty', due and whole(due) or -1, now}
end
redis.call('ZCARD', stem .. 'active')
redis.call('ZCARD', stem .. 'started')
redis.call('ZCARD', stem .. 'deadlines')
redis.call('SCARD', stem .. 'held:' .. worker)
local seen = redis.call('ZSCORE', stem .. 'workers', worker)
redis.call('LLEN', stem .. 'quarantine')
redis.call('XLEN', stem .. 'events')
redis.call('HLEN', stem .. 'stats')

if due and due <= now then
--@include placing
--@include promoting
  promote(at, 100)
  id = redis.call('LINDEX', pending, -1)
end

local bad = 0
while true do
  if not id then
    redis.call('DEL', stem .. 'wake')
    first = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    return {'empty', first[2] and whole(tonumber(first[2])) or -1, now}
  end
  local job = stem .. 'job:' .. id
  local body = redis.pcall('HMGET', job, unpack(FIELDS))
  local why = nil
  local attempt, rescues, failures, ready, expects, version
  if body.err then why = 'wrong type'
  elseif not valid(id) then why = 'bad id'
  elseif not body[1] or not body[2] then why = 'no body'
  else
    attempt, rescues, failures = integer(body[3]), integer(body[4]), integer(body[5])
    ready, expects, version = integer(body[6]), integer(body[7]), integer(body[8])
    if not (attempt and rescues and failures and ready and expects and version) then why = 'not a number' end
  end
  if why then
--@include placing
    redis.call('RPOP', pending)
    to_quarantine(id, job, why)
    bad = bad + 1
  elseif body[1] ~= 'pending' then
    redis.call('RPOP', pending)
    note('duplicate_dropped', id, '', '', 'was ' .. body[1] .. ', found in pending')
    bad = bad + 1
  else
    local delay = math.max(0, now - ready)
    local names = {'started', 'delay_ms', bucket('delay_le_', delay)}
    local counted, err = read_counters(names)
    if err then return err end
    local nth = whole(attempt + 1)
    local token = nth .. '.' .. nonce
    redis.call('RPOP', pending)
    local fields = {'state', 'active', 'attempt', nth, 'token', token, 'worker', worker, 'lock', lock,
      'lock_ttl_ms', ARGV[6], 'heartbeat_ms', ARGV[7], 'abort_after_ms', ARGV[8], 'started_at', at,
      'heartbeat_at', at, 'version', whole(version + 1)}
    local by = ''
    if expects > 0 then
      by = whole(now + expects)
      fields[#fields + 1] = 'expected_by'
      fields[#fields + 1] = by
      redis.call('ZADD', stem .. 'deadlines', by, id)
    end
    redis.call('HSET', job, unpack(fields))
    if lock == 'ttl' then redis.call('SET', stem .. 'lock:' .. id, token, 'PX', ARGV[6]) end
    redis.call('ZADD', stem .. 'active', at, id)
    redis.call('ZADD', stem .. 'started', at, id)
    redis.call('SADD', stem .. 'held:' .. worker, id)
    if not seen or tonumber(seen) < now - 1000 then redis.call('ZADD', stem .. 'workers', at, worker) end
    redis.call('HSET', stem .. 'stats', names[1], whole(counted[1] + 1), names[2], whole(counted[2] + delay), names[3],
      whole(counted[3] + 1))
    note('acquired', id, worker, token, '')
    remember(worker, slot, op, id .. ' ' .. token .. ' ' .. nth)
    return {'job', id, token, attempt + 1, body[2], now, rescues, failures, by, version + 1}
  end
  if bad >= 10 then return {'again', bad, now} end
  id = redis.call('LINDEX', pending, -1)
end
