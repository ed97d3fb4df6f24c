-- What begins an attempt: is the next job one that can run, and the attempt itself.

-- Its body with the numbers made numbers, at the places of the names below; or nil and why no worker could run it.
local STATE, ATTEMPT, RESCUES, FAILURES, VERSION, READY_AT, PAYLOAD, EXPECTED_MS = 1, 2, 3, 4, 5, 6, 7, 8
local function read_job(id)
  local body = redis.pcall('HMGET', stem .. 'job:' .. id, 'state', 'attempt', 'rescues', 'failures', 'version',
    'ready_at', 'payload', 'expected_ms')
  if body.err then return nil, 'wrong type' end
  if not valid(id) then return nil, 'bad id' end
  if body[STATE] and body[STATE] ~= 'pending' then return body end -- elsewhere: a completed one has no payload any more
  if not body[STATE] or not body[PAYLOAD] then return nil, 'no body' end
  for i = ATTEMPT, READY_AT do
    body[i] = integer(body[i])
    if not body[i] then return nil, 'not a number' end
  end
  body[EXPECTED_MS] = integer(body[EXPECTED_MS])
  if not body[EXPECTED_MS] then return nil, 'not a number' end
  return body
end

-- The answer to the repetition of a claim, from what `ops` kept of it.
local function repeat_claim(kept, now)
  local id, token, attempt = string.match(kept, '^(%S+) (%S+) (%d+)$')
  local was = call('HMGET', stem .. 'job:' .. id, 'state', 'token', 'payload', 'rescues', 'failures', 'expected_by', 'version')
  if was[1] ~= 'active' or was[2] ~= token then return {'lost', id, now} end
  return {'job', id, token, tonumber(attempt), was[3], now, integer(was[4]) or 0, integer(was[5]) or 0, was[6] or '',
    integer(was[7]) or 0}
end

-- Make one attempt current: first the indexes, then its body, and pending, at whose right end it still stands, last; see
-- leave_active. Returns the claim's answer, and what `ops` keeps.
local function start_attempt(id, body, worker, nonce, lock, lock_ttl, beat, abort_after, now, at)
  local job = stem .. 'job:' .. id
  local nth = whole(body[ATTEMPT] + 1)
  local token = nth .. '.' .. nonce
  local by = ''
  if lock == 'ttl' then call('SET', stem .. 'lock:' .. id, token, 'PX', lock_ttl) end
  call('ZADD', stem .. 'active', at, id)
  call('ZADD', stem .. 'started', at, id)
  call('SADD', stem .. 'held:' .. worker, id)
  if body[EXPECTED_MS] > 0 then
    by = whole(now + body[EXPECTED_MS])
    call('ZADD', stem .. 'deadlines', by, id)
  end
  call('HSET', job, 'state', 'active', 'attempt', nth, 'version', whole(body[VERSION] + 1), 'token', token,
    'worker', worker, 'started_at', at, 'heartbeat_at', at, 'lock', lock, 'lock_ttl_ms', lock_ttl,
    'heartbeat_ms', beat, 'abort_after_ms', abort_after)
  if by ~= '' then call('HSET', job, 'expected_by', by) end
  call('RPOP', stem .. 'pending')
  note('acquired', id, worker, token, '')
  return {'job', id, token, body[ATTEMPT] + 1, body[PAYLOAD], now, body[RESCUES], body[FAILURES], by, body[VERSION] + 1},
    id .. ' ' .. token .. ' ' .. nth
end
