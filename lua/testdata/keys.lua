-- Every key of a job: the values it takes, the values it refuses, and that an override has the same effect
-- as the key in the script.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function job(more)
  local keys = {
    input = {shape = {8}},
    layers = {nn.Linear{8, 8, name = "stem"}, nn.ReLU{}, nn.Linear{8, 4, name = "head"}},
    loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 4, micro_batch_size = 2},
    device = "cpu",
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end

-- plan{...} takes the keys that the script could have set: both give the same plan and the same keys.
for _, keys in ipairs{
  {parallel = {pipe = 2}}, {parallel = {pipe = 3}, partition = "uniform"}, {partition = {0, 1, 3}, parallel = {pipe = 2}},
  {batch = {size = 12, micro_batches = 3}}, {batch = {size = 12, micro_batch_size = 6}},
  {batch = {micro_batches = 2, micro_batch_size = 5}}, {schedule = "gpipe", parallel = {pipe = 2}},
  {input = {shape = {8}, dtype = "float32"}}, {seed = 7}, {steps = 5}, {epochs = 0.5},
  {optimizer = {"adam", lr = 0.1}}, {optimizer = "adamw"}, {clip = 1}, {transport = "threads"},
  {freeze = {0}}, {freeze = {"type:Linear"}}, {freeze = {"stem"}}, {threads = 2}, {timeout = 5, hang_timeout = 1.5},
  {lr_schedule = {"cosine", warmup = 3}}, {lr_schedule = "constant"}, {log = "run.jsonl"}, {losses = true},
  {eval = {every = 10, metric = "none"}}, {adapt = {"lora", rank = 2, layers = "weight"}},
} do
  expect.equal(tostring(job(keys):plan{}), tostring(job():plan(keys)))
end

-- The keys of a job can be read, whether they were given or not.
local given = job{
  parallel = {pipe = 2}, optimizer = {"adam", lr = 0.1}, lr_schedule = function(step) return step end,
  clip = 1, freeze = {0}, seed = 7,
}
expect.equal(given.parallel.pipe, 2)
expect.equal(given.optimizer.type, "adam")
expect.equal(given.optimizer.options.lr, 0.1)
expect.equal(given.lr_schedule["function"](5), 5)
expect.equal(given.clip, 1)
expect.equal(given.seed, 7)
expect.equal(job().lr_schedule.type, "constant")
expect.equal(job().schedule.name, "auto")
expect.equal(job().partition.method, "auto")
expect.equal(job().device, "cpu")
expect.equal(job().input, {shape = {8}, dtype = "float32"})

local j = job{batch = {size = 24, micro_batches = 4}}
expect.equal(j:plan{micro_batches = 6}.batch, {micro_batch_size = 4, micro_batches = 6, size = 24})

-- Members of parallel and batch may be given by themselves; a dotted path reaches any table.
expect.equal(job():plan{pipe = 2}.bounds, job():plan{parallel = {pipe = 2}}.bounds)
expect.equal(job():plan{["parallel.pipe"] = 2}.bounds, job():plan{pipe = 2}.bounds)
expect.equal(job():plan{["batch.micro_batches"] = 2}.batch.micro_batches, 2)
expect.equal(job():plan{micro_batches = 8, batch = {micro_batch_size = 1}}.batch.size, 8)

-- Frozen parameters are not trained, and are counted separately.
local plan = job{freeze = {"stem"}}:plan{}
expect.equal(plan.layers[1].parameters, 0)
expect.equal(plan.layers[1].frozen, 72)
expect.equal(plan.parameters, 36)
expect.equal(job{freeze = {0, 2}}:plan{}.parameters, 0)
expect.equal(job{freeze = {"type:LINEAR"}}:plan{}.parameters, 0)

-- The path of a layer is its name, or else its index.
expect.equal(plan.layers[1].path, "stem")
expect.equal(plan.layers[2].path, "1")
expect.equal(plan.layers[3].path, "head")
expect.equal(plan.layers[3].type, "Linear")

-- A job without a batch, a shape or a loss is valid.
local bare = strata.job{layers = {nn.Linear{8, 4}}, device = "cpu"}
expect.equal(#bare.layers, 1)
expect.equal(bare.loss.type, "")
expect.equal(bare:plan{micro_batches = 1, micro_batch_size = 1}.layers[1].output, {})
expect.equal(bare:plan{micro_batches = 1, micro_batch_size = 3, input = {shape = {8}}}.layers[1].output[1].shape, {3, 4})

-- The error for a wrong value says what the key expects and what was given.
local function wrong(keys, ...) return {function() job(keys) end, "keys.lua:", ...} end
expect.errors{
  wrong({name = 7}, "name", "the number 7"),
  wrong({name = {"x"}}, "name"),
  wrong({input = {}}, "shape"),
  wrong({input = {shape = 8.5}}, "shape", "8.5"),
  wrong({input = {shape = {8, 0}}}, "shape"),
  wrong({input = {shape = {8, "x"}}}, "shape"),
  wrong({input = {shape = {8}, dtype = "float31"}}, "float31", "float32"),
  wrong({input = {shape = {8}, dtyp = "float32"}}, '"dtyp"', "dtype"),
  wrong({loss = "CrossEntropyLoss"}, "loss", '"CrossEntropyLoss"'),
  wrong({loss = {}}, "loss"),
  wrong({loss = nn.ReLU{}}, "loss", "ReLU"),
  wrong({partition = 7}, "partition", "the number 7"),
  wrong({partition = {1, "x"}}, "partition"),
  wrong({parallel = {pipe = 0}}, "pipe", "0"),
  wrong({parallel = {pipe = "2x"}}, "pipe", '"2x"'),
  wrong({parallel = {pipes = 2}}, '"pipes"', "pipe"),
  wrong({stages_per_rank = 0}, "stages_per_rank", "the number 0"),
  wrong({stages_per_rank = "many"}, "stages_per_rank", '"many"'),
  wrong({schedule = 7}, "schedule", "the number 7"),
  wrong({schedule = "missing.csv"}, "schedule", "cannot read", "missing.csv"),
  wrong({batch = 8}, "batch needs two"),
  wrong({batch = {size = 0}}, "size", "0"),
  wrong({batch = {size = 7, micro_batches = 2}}, "7", "2"),
  wrong({batch = {size = 8, micro_batches = 2, micro_batch_size = 3}}, "8"),
  wrong({batch = {micro_batch_size = -1}}, "micro_batch_size", "-1"),
  wrong({optimizer = 7}, "optimizer", "the number 7"),
  wrong({optimizer = "sgb"}, '"sgb"', 'did you mean "sgd"?'),
  wrong({optimizer = {"sgd", lr = -1}}, "lr", "-1"),
  wrong({optimizer = {"sgd", lr = "fast"}}, "lr", '"fast"'),
  wrong({optimizer = {"sgd", betas = {0.9, 0.99}}}, '"betas"'),
  wrong({optimizer = {"adam", betas = {0.9}}}, "betas"),
  wrong({optimizer = {lr = 0.1}}, "optimizer"),
  wrong({lr_schedule = {"cosine", warmup = -1}}, "warmup", "-1"),
  wrong({lr_schedule = {"step"}}, "step", "every"),
  wrong({lr_schedule = true}, "lr_schedule", "true"),
  wrong({clip = -1}, "clip", "-1"),
  wrong({clip = "x"}, "clip", '"x"'),
  wrong({freeze = 1.5}, "freeze"),
  wrong({freeze = {9}}, "freeze", "9"),
  wrong({freeze = {"stemm"}}, "freeze", "stemm"),
  wrong({freeze = {"type:Conv"}}, "freeze", "Conv"),
  wrong({freeze = {"type:("}}, "freeze"),
  wrong({adapt = {"lora", layers = "wieght"}}, "adapt.layers", "wieght"),
  wrong({adapt = {"lora", rnak = 2, layers = "weight"}}, '"rnak"', "rank"),
  wrong({data = 7}, "data", "the number 7"),
  wrong({data = {trian = strata.data.digits{}}}, '"trian"', "train"),
  wrong({eval = {every = -1}}, "every", "-1"),
  wrong({eval = {metric = "acuracy"}}, "metric", '"acuracy"', "accuracy"),
  wrong({eval = {evry = 1}}, '"evry"', "every"),
  wrong({callbacks = {on_stop = print}}, '"on_stop"', "on_step"),
  wrong({callbacks = {on_step = 7}}, "on_step", "the number 7"),
  wrong({steps = 0}, "steps", "0"),
  wrong({steps = 1.5}, "steps", "1.5"),
  wrong({steps = 2 ^ 60}, "steps"),
  wrong({epochs = 0}, "epochs", "0"),
  wrong({seed = -1}, "seed", "-1"),
  wrong({seed = 2 ^ 53}, "seed"),
  wrong({seed_fn = 7}, "seed_fn", "the number 7"),
  wrong({device = "gpu"}, "device", '"gpu"', "cuda"),
  wrong({transport = "glue"}, "transport", '"glue"', "gloo"),
  wrong({threads = 0}, "threads", "0"),
  wrong({threads = 1e6}, "threads"),
  wrong({timeout = 0}, "timeout", "0"),
  wrong({hang_timeout = -2}, "hang_timeout", "-2"),
  wrong({log = 7}, "log", "the number 7"),
  wrong({losses = "yes"}, "losses", '"yes"'),
  wrong({step = 5}, '"step"', "steps"),
  wrong({Layers = {}}, '"Layers"', "layers"),
  wrong({[1] = "x"}, "keys.lua:"),
}
-- As an override each wrong value is refused too, and the job stays unchanged.
local untouched = tostring(j)
for _, keys in ipairs{
  {pipe = 0}, {optimizer = "sgb"}, {clip = -1}, {steps = 1.5}, {seed = -1}, {device = "gpu"}, {transport = "glue"},
  {partition = "sometimes"}, {micro_batches = 5}, {schedule = "2f2b"}, {freeze = {9}}, {unknown = 1},
  {["optimizer.lr"] = -1}, {["optimizer.speed"] = 1}, {["nothing.here"] = 1}, {[""] = 1}, {["."] = 1},
  {layers = {}}, {loss = 7}, {input = {shape = {3}}}, {[1] = "pipe"},
} do
  expect.error(function() j:plan(keys) end, "keys.lua:")
  expect.equal(tostring(j), untouched)
end
