#!lua
-- Store a value of the batch cache that was computed under a stamp: only while that stamp still stands, so that what was
-- computed under an older one never covers a newer one. Refused while Redis is out of memory.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 key  2 stamp read before computing ('0' where there was none)  3 value (at most 1 MB)  4 ttl_ms
-- returns {'stored' | 'stale', stamp that stands}
--@include common
local key, computed, value, ttl = ARGV[1], ARGV[2], ARGV[3], integer(ARGV[4])
local refused = version_error()
if refused then return refused end
if not valid(key) then return refuse_name('cache key', key) end
if not string.find(computed, '^%d+$') then return redis.error_reply('UNSTUCKVALUE stamp ' .. string.sub(computed, 1, 40)) end
if #value > 1048576 then return redis.error_reply('UNSTUCKVALUE value ' .. #value) end
if not ttl or ttl < 1 then return redis.error_reply('UNSTUCKVALUE ttl_ms ' .. ARGV[4]) end
local batch = stem .. 'batch:' .. key
local stamp = redis.call('GET', stem .. 'stamp') or '0'
redis.call('HLEN', batch)
if stamp ~= computed then return {'stale', stamp} end
redis.call('HSET', batch, 'stamp', stamp, 'value', value)
redis.call('PEXPIRE', batch, ttl)
return {'stored', stamp}
