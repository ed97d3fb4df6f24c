-- Histogram buckets: counts of observations, not cumulative; the exporter adds them up.
local BOUNDS = {50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000}
local function bucket(prefix, ms)
  for i = 1, #BOUNDS do
    if ms <= BOUNDS[i] then return prefix .. BOUNDS[i] end
  end
  return prefix .. 'inf'
end
