-- S6: only the agent whose epoch stands in the queue's fence may reclaim or publish; a younger one raises it.
local function fence_error(epoch)
  local mine = integer(epoch)
  if not mine or mine < 1 then return redis.error_reply('UNSTUCKVALUE epoch ' .. epoch) end
  local stands = integer(call('GET', stem .. 'fence'))
  if not stands then return redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'fence') end
  if mine < stands then return redis.error_reply('UNSTUCKFENCED ' .. whole(stands)) end
  return nil
end

local function raise_fence(epoch) call('SET', stem .. 'fence', epoch) end
