-- Shared beginning of every script of a queue. KEYS[1] is unstuck:{Q}:meta; every other key has the same stem and so
-- the same hash tag. Redis does not roll a script back: whatever may refuse is read (and so type-checked, since a read
-- of the wrong type raises) before the first write. A WRONGTYPE raised here is named by the client (diagnosis.py).
local stem = string.sub(KEYS[1], 1, -5)

-- Server time: milliseconds as a number, microseconds as a number, milliseconds as text (cheaper to hand back to Redis).
local function clock()
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  return now, t[1] * 1000000 + t[2], string.format('%.0f', now)
end

-- What Redis would add to: an integer of at most 15 digits; absent counts as 0; anything else is nil.
local function integer(text)
  if not text then return 0 end
  if #text <= 15 and string.find(text, '^%-?%d+$') then return tonumber(text) end
  return nil
end

local function whole(number) return string.format('%.0f', number) end

local function valid(id)
  return #id >= 1 and #id <= 128 and not string.find(id, '[^%w._:-]')
end

local function refuse_name(what, id)
  return redis.error_reply('UNSTUCKNAME ' .. what .. ' ' .. string.sub(id, 1, 140))
end

-- The protocol's version, before anything else: nil, or the error to answer.
local function version_error()
  local v = redis.call('HGET', KEYS[1], 'v')
  if v and v ~= '1' then return redis.error_reply('UNSTUCKVERSION ' .. v) end
  if string.sub(KEYS[1], 1, 9) ~= 'unstuck:{' or string.sub(KEYS[1], -6) ~= '}:meta' then
    return redis.error_reply('UNSTUCKNAME meta key ' .. KEYS[1])
  end
  return nil
end

-- Counters that a script is about to raise, read once: counters[i] is a number, or the script must answer `err`.
local function read_counters(names)
  local raw = redis.call('HMGET', stem .. 'stats', unpack(names))
  local values = {}
  for i = 1, #names do
    local n = integer(raw[i])
    if not n then return nil, redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'stats ' .. names[i]) end
    values[i] = n
  end
  return values, nil
end

local function note(event, job, worker, token, cause)
  redis.call('XADD', stem .. 'events', 'MAXLEN', '~', '10000', '*', 'event', event, 'job', job, 'worker', worker,
    'token', token, 'cause', cause)
end

-- S8: the answer of a caller's last mutating call stands under its slot together with the operation id it chose.
local function recalled(caller, slot, op)
  local last = redis.call('HGET', stem .. 'ops', caller .. ':' .. slot)
  if last and string.sub(last, 1, #op + 1) == op .. ' ' then return string.sub(last, #op + 2) end
  return nil
end

local function remember(caller, slot, op, answer)
  redis.call('HSET', stem .. 'ops', caller .. ':' .. slot, op .. ' ' .. answer)
  return answer
end
