#!lua flags=allow-oom
-- Give up the own lease at once (a clean stop), so that a standby need not wait. The epoch stays.
-- KEYS 1 unstuck:leader
-- ARGV 1 owner  2 epoch
-- returns 1 if it was ours
local record = redis.call('HMGET', KEYS[1], 'owner', 'epoch')
if record[1] ~= ARGV[1] or record[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'until_ms', 0)
return 1
