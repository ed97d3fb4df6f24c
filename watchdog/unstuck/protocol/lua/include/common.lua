-- Shared beginning of every script of a queue. KEYS[1] is unstuck:{Q}:meta; every other key has the same stem and so
-- the same hash tag. Redis does not roll a script back: whatever may refuse is read (and so type-checked, since a read
-- of the wrong type raises) before the first write. A WRONGTYPE raised here is named by the client (diagnosis.py).
-- Scripts hand text rather than numbers to Redis, and use these locals: both save it about a tenth of its time.
local call, find = redis.call, string.find
local stem = string.sub(KEYS[1], 1, -5)

local function whole(number) return string.format('%d', number) end

-- Server time: milliseconds as a number, microseconds as a number, milliseconds as text (cheaper to hand back to Redis).
local function clock()
  local t = call('TIME')
  local micros = t[1] * 1000000 + t[2]
  local now = math.floor(micros / 1000)
  return now, micros, whole(now)
end

-- What Redis would add to: an integer of at most 15 digits; absent counts as 0; anything else is nil.
local function integer(text)
  if not text or text == '0' then return 0 end
  if #text <= 15 and find(text, '^%-?%d+$') then return text + 0 end
  return nil
end

local function valid(id)
  return #id <= 128 and (find(id, '^%w+$') or find(id, '^[%w._:-]+$')) and true
end

local function refuse_name(what, id)
  return redis.error_reply('UNSTUCKNAME ' .. what .. ' ' .. string.sub(id, 1, 140))
end

-- The protocol's version, before anything else: nil, or the error to answer.
local function version_error()
  local v = call('HGET', KEYS[1], 'v')
  if v and v ~= '1' then return redis.error_reply('UNSTUCKVERSION ' .. v) end
  if not find(KEYS[1], '^unstuck:{[^}]*}:meta$') then
    return redis.error_reply('UNSTUCKNAME meta key ' .. KEYS[1])
  end
  return nil
end

-- Counters that a script is about to raise, read once: counters[i] is a number, or the script must answer `err`.
local function read_counters(names)
  local raw = call('HMGET', stem .. 'stats', unpack(names))
  local values = {}
  for i = 1, #names do
    local n = integer(raw[i])
    if not n then return nil, redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'stats ' .. names[i]) end
    values[i] = n
  end
  return values, nil
end

local function note(event, job, worker, token, cause)
  call('XADD', stem .. 'events', 'MAXLEN', '~', '10000', '*', 'event', event, 'job', job, 'worker', worker,
    'token', token, 'cause', cause)
end

-- S8: the answer of a caller's last mutating call stands under its slot together with the operation id it chose.
local function recalled(caller, slot, op)
  local last = call('HGET', stem .. 'ops', caller .. ':' .. slot)
  if last and string.sub(last, 1, #op + 1) == op .. ' ' then return string.sub(last, #op + 2) end
  return nil
end

local function remember(caller, slot, op, answer)
  call('HSET', stem .. 'ops', caller .. ':' .. slot, op .. ' ' .. answer)
  return answer
end
