#!lua flags=allow-oom
-- Forget workers that have not beaten for a long time and hold nothing, with their remembered answers.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 silent_for_ms  2 number of workers  then the workers, then the fields of `ops` that belong to them
-- returns number of workers forgotten
--@include common
local refused = version_error()
if refused then return refused end
local silent, count = integer(ARGV[1]), integer(ARGV[2])
if not silent or not count or count > 100 then return redis.error_reply('UNSTUCKVALUE silent_for_ms or count') end
local now = clock()
redis.call('HLEN', stem .. 'ops')
local gone, forgotten = {}, 0
for i = 3, 2 + count do
  local seen = redis.call('ZSCORE', stem .. 'workers', ARGV[i])
  if seen and tonumber(seen) <= now - silent and redis.call('SCARD', stem .. 'held:' .. ARGV[i]) == 0 then
    redis.call('ZREM', stem .. 'workers', ARGV[i])
    redis.call('UNLINK', stem .. 'worker:' .. ARGV[i])
    gone[ARGV[i]] = true
    forgotten = forgotten + 1
  end
end
for i = 3 + count, #ARGV do
  local owner = string.match(ARGV[i], '^(.*):[^:]*$')
  if owner and gone[owner] then redis.call('HDEL', stem .. 'ops', ARGV[i]) end
end
return forgotten
