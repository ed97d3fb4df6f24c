#!lua
-- Write fields of a job's metadata cache: only the holder of the current token may; other fields stay as they are.
-- Deleted by whatever ends the attempt. Refused while Redis is out of memory.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 token  3 ttl_ms  then field, value, … (at most 64 kB together)
-- returns 'written' | 'refused' (the token is not current: nothing was changed)
--@include common
local id, token, ttl = ARGV[1], ARGV[2], integer(ARGV[3])
local refused = version_error()
if refused then return refused end
if not valid(id) then return refuse_name('job id', id) end
if not ttl or ttl < 1 then return redis.error_reply('UNSTUCKVALUE ttl_ms ' .. ARGV[3]) end
local size, fields = 0, {}
for i = 4, #ARGV do
  size = size + #ARGV[i]
  fields[#fields + 1] = ARGV[i]
end
if size > 65536 or #fields == 0 or #fields % 2 == 1 or #fields > 1000 then
  return redis.error_reply('UNSTUCKVALUE cache of ' .. size .. ' bytes in ' .. #fields .. ' parts')
end
local cache = stem .. 'cache:' .. id
local body = redis.call('HMGET', stem .. 'job:' .. id, 'state', 'token')
redis.call('HLEN', cache)
if body[1] ~= 'active' or body[2] ~= token then
  redis.pcall('HINCRBY', stem .. 'stats', 'refused', 1)
  return 'refused'
end
redis.call('HSET', cache, unpack(fields))
redis.call('PEXPIRE', cache, ttl)
return 'written'
