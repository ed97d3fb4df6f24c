-- What ends an attempt, wherever its job goes next.

-- The next cache stamp, or the error to answer.
local function next_stamp(micros)
  local stamp = call('GET', stem .. 'stamp')
  if not stamp then return micros, nil end
  if #stamp <= 16 and find(stamp, '^%d+$') then return math.max(stamp + 1, micros), nil end
  return nil, redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'stamp')
end

-- What the body says of an attempt; begun and version are nil where they are no numbers.
local function read_attempt(id)
  local body = call('HMGET', stem .. 'job:' .. id, 'state', 'version', 'token', 'worker', 'started_at', 'expected_by')
  return {state = body[1], version = integer(body[2]), token = body[3], worker = body[4] or '', begun = integer(body[5]),
    deadline = body[6]}
end

-- Read what ending an attempt will write to, so that a wrong type raises before the first write.
local function check_attempt(worker, deadline)
  call('ZCARD', stem .. 'active')
  call('ZCARD', stem .. 'started')
  if deadline then call('ZCARD', stem .. 'deadlines') end
  call('SCARD', stem .. 'held:' .. worker)
  call('XLEN', stem .. 'events')
end

-- Forget the attempt everywhere but in body and index: ages, deadline, the worker's set, the lock key, the cache.
local function end_attempt(id, worker, deadline)
  call('ZREM', stem .. 'started', id)
  if deadline then call('ZREM', stem .. 'deadlines', id) end
  if worker ~= '' then call('SREM', stem .. 'held:' .. worker, id) end
  call('UNLINK', stem .. 'lock:' .. id, stem .. 'cache:' .. id)
end

-- Last of all, when the job stands where it goes next: what stops a script half way (a right that its user lacks) leaves
-- it in some index.
local function leave_active(id) call('ZREM', stem .. 'active', id) end

local unheard = 0 -- events of this call that nobody listened to
local function invalidate(id, event, stamp)
  local text = whole(stamp)
  call('SET', stem .. 'stamp', text)
  local told = call('PUBLISH', stem .. 'invalidate', '{"id":"' .. id .. '","event":"' .. event .. '","stamp":' .. text .. '}')
  if told == 0 then unheard = unheard + 1 end
end

-- Where nothing else is counted any more: an event that nobody heard. A damaged counter stays as it is.
local function count_unheard()
  if unheard > 0 then redis.pcall('HINCRBY', stem .. 'stats', 'unheard', whole(unheard)) end
end

-- The body of a completed job: kept for a while, without what is big.
local function finish_body(id, body, at, result_ttl)
  local job = stem .. 'job:' .. id
  call('HSET', job, 'state', 'done', 'version', whole(body.version + 1), 'finished_at', at)
  call('HDEL', job, 'payload', 'progress', 'cancelled_at')
  if body.deadline then call('HDEL', job, 'expected_by') end
  call('PEXPIRE', job, result_ttl)
end
