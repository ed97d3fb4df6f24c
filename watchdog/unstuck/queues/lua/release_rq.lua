#!lua
-- Give RQ's cleaner lock back after a batch, if it is still the one we hold.
-- KEYS 1 rq:clean_registries:Q
-- ARGV 1 value of our hold
-- returns 1 | 0
if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
