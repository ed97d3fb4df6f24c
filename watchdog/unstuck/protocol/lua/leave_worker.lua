#!lua flags=allow-oom
-- A worker takes its leave: its record, its place in the list and its remembered answers go. One that still holds jobs
-- stays, so that they can be found.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  then the slots it used
-- returns {'left' | 'holds', jobs held}
--@include common
local worker = ARGV[1]
local refused = version_error()
if refused then return refused end
if not valid(worker) then return refuse_name('worker', worker) end
redis.call('ZSCORE', stem .. 'workers', worker)
redis.call('HLEN', stem .. 'ops')
local holds = redis.call('SCARD', stem .. 'held:' .. worker)
if holds > 0 then return {'holds', holds} end
redis.call('ZREM', stem .. 'workers', worker)
redis.call('UNLINK', stem .. 'worker:' .. worker)
for i = 2, #ARGV do redis.call('HDEL', stem .. 'ops', worker .. ':' .. ARGV[i]) end
return {'left', 0}
