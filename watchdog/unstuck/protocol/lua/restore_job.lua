#!lua
-- Put a job that its own state says is somewhere, but that no index knows, back where its state says. Harmless to run twice.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 epoch  2 id
-- returns 'restored' | 'known' | 'gone'
--@include common
--@include placing
--@include fencing
local id = ARGV[2]
local refused = version_error()
if refused then return refused end
if not valid(id) then return refuse_name('job id', id) end
local fenced = fence_error(ARGV[1])
if fenced then return fenced end
local job = stem .. 'job:' .. id
local body = redis.call('HMGET', job, 'state', 'heartbeat_at', 'started_at', 'worker', 'died_at', 'payload')
local now, _, at = clock()
check_places()
redis.call('ZCARD', stem .. 'active')
redis.call('ZCARD', stem .. 'started')
redis.call('SCARD', stem .. 'held:' .. (body[4] or ''))
if not body[1] then return 'gone' end
local known
if body[1] == 'active' then known = redis.call('ZSCORE', stem .. 'active', id)
elseif body[1] == 'scheduled' then known = redis.call('ZSCORE', stem .. 'scheduled', id)
elseif body[1] == 'dead' then known = redis.call('ZSCORE', stem .. 'dead', id)
elseif body[1] == 'pending' then known = redis.call('LPOS', stem .. 'pending', id)
elseif body[1] == 'quarantine' then known = redis.call('LPOS', stem .. 'quarantine', id)
else return 'known' end
if known then return 'known' end

local function since(text) return string.find(text or '', '^%d+$') and text or at end
if body[1] == 'active' then -- judged like any other from now on: by the heartbeat that it has
  redis.call('ZADD', stem .. 'active', since(body[2]), id)
  redis.call('ZADD', stem .. 'started', since(body[3]), id)
  if body[4] and body[4] ~= '' then redis.call('SADD', stem .. 'held:' .. body[4], id) end
elseif body[1] == 'dead' then redis.call('ZADD', stem .. 'dead', since(body[5]), id)
elseif body[1] == 'quarantine' or not body[6] then to_quarantine(id, job, 'no body')
elseif body[1] == 'scheduled' then to_scheduled(id, job, now)
else to_pending(id, job, at, 'RPUSH') end
note('restored', id, body[4] or '', '', 'was ' .. body[1] .. ', found in no index')
raise_fence(ARGV[1])
return 'restored'
