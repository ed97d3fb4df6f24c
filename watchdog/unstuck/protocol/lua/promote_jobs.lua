#!lua
-- Move due jobs from scheduled to pending; every claim does so too. Harmless to run twice.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 most (1..100)
-- returns {moved, next_due_ms or -1, now_ms}
--@include common
--@include placing
--@include promoting
local refused = version_error()
if refused then return refused end
local most = integer(ARGV[1])
if not most or most < 1 or most > 100 then return redis.error_reply('UNSTUCKVALUE most ' .. ARGV[1]) end
local now, _, at = clock()
check_places()
local moved = promote(at, most)
local first = redis.call('ZRANGE', stem .. 'scheduled', 0, 0, 'WITHSCORES')
return {moved, first[2] and whole(tonumber(first[2])) or -1, now}
