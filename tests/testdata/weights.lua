-- What a model computes with weights from elsewhere: logits and five steps, against those that
-- transformers or torchvision recorded (weights/make_weights.py).
--   strata run weights.lua MODEL GOLDEN SOURCE [key=value ...]
local strata = require "strata"
local F = strata.F
local golden = strata.json.decode(strata.read(arg[2]))
local options = strata.json.decode(arg[3])
local keys = strata.json.decode(arg[4])

local function filled(values, shape) return F.tensor(values):view(shape) end
local x, y = filled(golden.x, golden.x_shape), filled(golden.y, golden.y_shape)
if golden.x_shape[2] == 3 then x = x:to("float32") end

local load = {}
for name, value in pairs(options) do load[name] = value end
local job = strata.load(arg[1], load)
local start = {
  steps = #golden.losses, device = "cpu", threads = 1, lr_schedule = "constant", clip = "none",
  optimizer = {"sgd", lr = golden.lr, momentum = 0, weight_decay = 0},
  batch = {micro_batches = 1, micro_batch_size = golden.x_shape[1]},
}
for name, value in pairs(keys) do start[name] = value end
local engine = job:start(start)

local function batch()
  local given = false
  return function()
    if given then return nil end
    given = true
    return x, y
  end
end
local loss, outputs = engine:eval_batch(batch(), {outputs = true})
assert(engine:predict(x) == outputs[1], "the same without targets")
local losses = {}
for step = 1, #golden.losses do losses[step] = engine:train_batch(batch()) end
if keys.save then engine:save() end
engine:close()
print(strata.json.encode{logits = outputs[1]:reshape(-1):tolist(), losses = losses})
