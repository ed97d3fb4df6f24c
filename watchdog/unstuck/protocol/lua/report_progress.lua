#!lua flags=allow-oom
-- Store the progress of one current attempt. It is no heartbeat: "beats without progress" needs the two apart.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 token  3 progress (at most 1 kB)
-- returns 'ok' | 'lost' | 'cancelled'
--@include common
local refused = version_error()
if refused then return refused end
local job = stem .. 'job:' .. ARGV[1]
local body = redis.call('HMGET', job, 'state', 'token', 'cancelled_at')
if body[1] ~= 'active' or body[2] ~= ARGV[2] then
  redis.pcall('HINCRBY', stem .. 'stats', 'refused', 1)
  return 'lost'
end
redis.call('HSET', job, 'progress', string.sub(ARGV[3], 1, 1024))
return body[3] and 'cancelled' or 'ok'
