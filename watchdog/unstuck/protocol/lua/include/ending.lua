-- What ends an attempt, wherever its job goes next.

-- The next cache stamp, or the error to answer.
local function next_stamp(micros)
  local stamp = redis.call('GET', stem .. 'stamp')
  if not stamp then return micros, nil end
  if #stamp <= 16 and string.find(stamp, '^%d+$') then return math.max(tonumber(stamp) + 1, micros), nil end
  return nil, redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'stamp')
end

-- Read what ending an attempt will write to, so that a wrong type raises before the first write.
local function check_attempt(worker)
  redis.call('ZCARD', stem .. 'active')
  redis.call('ZCARD', stem .. 'started')
  redis.call('ZCARD', stem .. 'deadlines')
  redis.call('SCARD', stem .. 'held:' .. worker)
  redis.call('XLEN', stem .. 'events')
end

-- Forget the attempt everywhere but in the body: index, ages, deadline, the worker's set, the lock key, the cache.
local function end_attempt(id, worker, deadline)
  redis.call('ZREM', stem .. 'active', id)
  redis.call('ZREM', stem .. 'started', id)
  if deadline then redis.call('ZREM', stem .. 'deadlines', id) end
  if worker ~= '' then redis.call('SREM', stem .. 'held:' .. worker, id) end
  redis.call('UNLINK', stem .. 'lock:' .. id, stem .. 'cache:' .. id)
end

local unheard = 0 -- events of this call that nobody listened to
local function invalidate(id, event, stamp)
  local text = whole(stamp)
  redis.call('SET', stem .. 'stamp', text)
  local told = redis.call('PUBLISH', stem .. 'invalidate', '{"id":"' .. id .. '","event":"' .. event .. '","stamp":' .. text .. '}')
  if told == 0 then unheard = unheard + 1 end
end

