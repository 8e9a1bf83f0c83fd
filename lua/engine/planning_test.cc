// Planning does not start CUDA: a process that has started CUDA cannot fork ranks for GPUs.
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/record_function.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>

#include "engine/plan/plan.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

std::atomic<int> asked = 0;

/// Replaces CUDA's library. Autograd's engine asks isBuilt() and then starts a thread for each GPU;
/// questions about cuDNN start CUDA itself.
struct FakeHooks : at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  bool isBuilt() const override {
    ++asked;
    return false;
  }
  bool supportsBFloat16RNNWithCuDNN() const override {
    ++asked;
    return false;
  }
};

}  // namespace
}  // namespace strata::lua

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, strata::lua::FakeHooks)
}  // namespace at

namespace strata::lua {
namespace {

class PlanningTest : public StateTest {};

TEST_F(PlanningTest, TrialsOfLayersSkipProducts) {
  Show(R"(
    nn, F = strata.nn, strata.F
    seen = {}
    job = strata.job{
      name = "net", device = "cpu", input = {shape = {4}},
      layers = {
        function(x) seen[F.ones{2, 3}:mm(F.ones{3, 2}):sum():item()] = true return x * 2 end,
        nn.Linear{4, 3},
      },
      loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
      optimizer = {"sgd", lr = 0.1}, steps = 1,
      data = {train = function(i) return F.randn{2, 4}, F.tensor{0, 1} end},
    }
    plan = job:plan{pipe = 1}
  )");
  EXPECT_EQ(Show("{seen[0], seen[12]}"), "{true}");
  Show("job:train{pipe = 1}");
  EXPECT_EQ(Show("seen[12]"), "true");
}

TEST_F(PlanningTest, LayersThatAreAlikeButForTheirNamesAreBuiltAndMeasuredOnce) {
  Show(R"(
    nn, F = strata.nn, strata.F
    built, forwards = 0, 0
    Block = strata.layer{
      name = "Block",
      init = function(self, size) self.w = self:parameter{size, 4} end,
      reset = function(self) built = built + 1 end,
      forward = function(self, x)
        forwards = forwards + 1
        return x + F.linear(F.linear(x, self.w):relu(), self.w:t())
      end,
    }
    function plan(layers)
      built, forwards = 0, 0
      strata.job{
        device = "cpu", input = {shape = {4}}, layers = layers, loss = nn.CrossEntropyLoss{},
        batch = {micro_batches = 2, micro_batch_size = 2}, optimizer = {"sgd", lr = 0.1}, steps = 1,
        data = {train = function(i) return F.randn{2, 4}, F.tensor{0, 1} end},
      }:plan{pipe = 1, memory = "1GB"}
      return {built, forwards}
    end
    one = plan{Block{5}}
    four = plan{Block{6}, Block{6, name = "middle"}, Block{6}, Block{6}}
    two = plan{Block{7}, Block{8}, Block{7}, Block{8}}
  )");
  // All that are alike are built and run once for their shapes, and once for their memory.
  EXPECT_EQ(Show("one"), "{2, 2}");
  EXPECT_EQ(Show("four"), "{2, 2}");
  EXPECT_EQ(Show("two"), "{4, 4}");
}

TEST_F(PlanningTest, ErrorsOfTrialsSayHowTheFunctionWasCalled) {
  Show(R"(
    nn, F = strata.nn, strata.F
    function job(layer, loss)
      return strata.job{
        device = "cpu", layers = {layer, nn.Linear{4, 3}}, loss = loss or nn.CrossEntropyLoss{},
        batch = {micro_batches = 2, micro_batch_size = 2}, steps = 1,
        data = {train = function(i) return F.randn{2, 4}, F.tensor{0, 1} end},
      }
    end)");
  EXPECT_THAT(Fail("job(function(x) return x / (x:abs():max():item() > 0 and 1 or error('no')) end"
                   "):plan{pipe = 1}"),
              testing::HasSubstr("no (planning runs it on zeros: float32 (2, 4))"));
  EXPECT_THAT(
      Fail("job(function(x) return x end, function(y, t) error('never') end"
           "):plan{pipe = 1}"),
      testing::HasSubstr(
          "never (planning runs it on tensors without values: float32 (2, 3) and int64 (2,))"));
}

/// The most memory that this process has had, in bytes.
int64_t PeakBytes() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  return int64_t{use.ru_maxrss} * 1024;
}

/// Counts all operators of LibTorch that this process calls from now on, also those that are called
/// by others.
std::atomic<int64_t>& CountedOperators() {
  static std::atomic<int64_t> count;
  count = 0;
  static const auto counting = at::addGlobalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++count;
        return nullptr;
      }));
  static_cast<void>(counting);
  return count;
}

// The layers of Llama 70B hold 2.9 GB of parameters each in float32, and keep 6 GB for the
// backward.
TEST_F(PlanningTest, LayersOf70BillionParametersTakeNoMemoryAndFewOperators) {
  Show(R"(
    nn, F = strata.nn, strata.F
    function llama(dim, depth, heads, kv_heads, hidden, words, length)
      local Block = strata.layer{
        name = "Block",
        init = function(self)
          self.norm, self.norm2 = nn.RMSNorm{dim}, nn.RMSNorm{dim}
          self.attn = nn.GroupedQueryAttention{dim, heads, num_kv_heads = kv_heads, rope_theta = 1e4}
          self.up, self.down = nn.SwiGLU{dim, hidden}, self:parameter{dim, 4}
        end,
        forward = function(self, x)
          x = x + self.attn(self.norm(x))
          return x + self.up(self.norm2(x)) + F.linear(F.linear(x, self.down:t()), self.down)
        end,
      }
      return strata.job{
        device = "cpu", loss = nn.CrossEntropyLoss{class_dim = -1}, steps = 1,
        layers = {nn.Embedding{words, dim}, strata.times(depth, function() return Block{} end),
                  nn.Linear{dim, words, bias = false}},
        batch = {micro_batches = 4, micro_batch_size = 1}, optimizer = {"adamw", lr = 1e-3},
        data = {train = function()
          local tokens = F.zeros({1, length}, {dtype = "int64"})
          return tokens, tokens
        end},
      }
    end
    small = llama(64, 2, 4, 2, 128, 64, 16):plan{pipe = 1}
  )");
  std::atomic<int64_t>& operators = CountedOperators();
  const int64_t before = PeakBytes();
  Show("plan = llama(4096, 32, 32, 32, 11008, 32000, 4096):plan{pipe = 2}");
  Show("plan = llama(8192, 80, 64, 8, 28672, 128256, 8192):plan{pipe = 4}");
  EXPECT_LT(PeakBytes() - before, 64 << 20);
  EXPECT_GT(operators, 0);
  EXPECT_LT(operators, 4000);
  EXPECT_THAT(Show("plan"), testing::HasSubstr("70,556,319,744 parameters"));
}

// Dropout, its fusion with ReLU, and 3x3 convolutions have kernels of ours, which work on
// addresses.
TEST_F(PlanningTest, KernelsOfOursTouchNoMemoryEither) {
  Show(R"(
    nn, F = strata.nn, strata.F
    function plan(layer, last, size, ...)
      local shape = {size, ...}
      local Holder = strata.layer{
        name = "Holder",
        init = function(self) self.inner = layer() end,
        forward = function(self, x) return self.inner(x) end,
      }
      return strata.job{
        device = "cpu", threads = 1, layers = {Holder{}, function(x) return x:flatten(1):narrow(1, 0, last) end},
        loss = nn.MSELoss{}, batch = {micro_batches = 1, micro_batch_size = size}, steps = 1,
        optimizer = {"sgd", lr = 0.1},
        data = {train = function() return F.zeros{1}:expand(shape), F.zeros{size, last} end},
      }:plan{pipe = 1}
    end
    small = plan(function() return nn.ReLU{} end, 4, 2, 8)
  )");
  const int64_t before = PeakBytes();
  EXPECT_THAT(Show("plan(function() return nn.Dropout{0.1} end, 4, 1, 4096, 16384)"),
              testing::HasSubstr("Holder"));
  EXPECT_THAT(Show("plan(function() return nn.TransformerEncoderLayer{2048, 16, "
                   "dim_feedforward = 16384, dropout = 0.1, batch_first = true} end, "
                   "4, 1, 4096, 2048)"),
              testing::HasSubstr("Holder"));
  EXPECT_THAT(Show("plan(function() return nn.Conv2d{64, 64, 3, padding = 1} end, "
                   "4, 4, 64, 512, 512)"),
              testing::HasSubstr("Holder"));
  EXPECT_LT(PeakBytes() - before, 64 << 20);
}

TEST_F(PlanningTest, FunctionsThatReadValuesAreComputedAndNoted) {
  const ScriptFolder folder;
  const auto notices = [&](const std::string& layer) {
    Flags flags({}, {});
    const Job job = state().LoadJob(folder.Write("net.lua", R"(
      local strata = require "strata"
      local nn, F = strata.nn, strata.F
      return strata.job{
        device = "cpu", layers = {)" + layer + R"(, nn.Linear{4, 3}},
        loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2}, steps = 1,
        optimizer = {"sgd", lr = 0.1},
        data = {train = function(i) return F.randn{2, 4}, F.tensor{0, 1} end},
      })"),
                                    flags);
    return MakePlan(job, {}, &state().script()).notices;
  };
  const auto noted = testing::Contains(testing::AllOf(
      testing::HasSubstr("net.lua:5: "),
      testing::HasSubstr("needs values of its tensors (aten::_local_scalar_dense)")));
  const std::string checks = "if x:abs():max():item() > 0 then error('not zeros') end return x end";
  EXPECT_THAT(notices("function(x) " + checks), noted);
  EXPECT_THAT(notices("function(x) pcall(function() return x:sum():item() end) return x + 1 end"),
              noted);
  EXPECT_THAT(notices("function(x) return x + 1 end"), testing::Not(noted));
}

TEST_F(PlanningTest, MetricsAreTriedAndNamed) {
  Show(R"(
    nn, F = strata.nn, strata.F
    function job(mine)
      local images = strata.data.images{shape = {4}, classes = 3, samples = 8}
      return strata.job{
        device = "cpu", threads = 1, layers = {nn.Linear{4, 3}}, loss = nn.CrossEntropyLoss{},
        batch = {micro_batches = 2, micro_batch_size = 2}, optimizer = {"sgd", lr = 0.1}, steps = 1,
        eval = {metrics = {mine = mine}}, data = {train = images, test = images},
      }
    end)");
  EXPECT_THAT(Fail("job(function(y, t) return y:argmax(1):eq(t) end):plan{pipe = 1}"),
              testing::AllOf(
                  testing::HasSubstr("eval.metrics.mine: "),
                  testing::HasSubstr("the function must return a tensor of one element, or a sum"),
                  testing::HasSubstr("(planning runs it on tensors without values: float32 (2, 3) "
                                     "and int64 (2,))"),
                  testing::Not(testing::HasSubstr("the loss"))));
  EXPECT_THAT(Fail("job(function(y, t) return y:max() / (y:max():item() == 0 and 1 or 'a') end"
                   "):start{pipe = 1}:evaluate()"),
              testing::AllOf(testing::HasSubstr("eval.metrics.mine: "),
                             testing::HasSubstr("div does not take"),
                             testing::Not(testing::HasSubstr("the loss"))));
  EXPECT_EQ(Show("job(function(y, t) return y:argmax(1):eq(y:argmax(1)):float():mean() end"
                 "):start{pipe = 1}:evaluate().mine"),
            "1");
}

// A recursive walk would need more stack than a thread has.
TEST_F(PlanningTest, TrialsOfLayersMayBeDeep) {
  StateOptions options = Options();
  options.seconds = 120;
  state_ = std::make_unique<State>(options);
  Show(R"(
    nn, F = strata.nn, strata.F
    job = strata.job{
      name = "net", device = "cpu", input = {shape = {4}},
      layers = {nn.Linear{4, 4}, function(x) for i = 1, 300000 do x = x + 1 end return x end},
      loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
      optimizer = {"sgd", lr = 0.1}, steps = 1,
      data = {train = function(i) return F.randn{2, 4}, F.tensor{0, 1} end},
    }
  )");
  EXPECT_NE(Show("job:plan{pipe = 1}:memory()"), "");
}

TEST_F(PlanningTest, TrialsOfLayersDoNotStartCuda) {
  Show(R"(
    nn, F = strata.nn, strata.F
    Branch = strata.layer{
      name = "Branch",
      init = function(self)
        self.conv = nn.Conv2d{2, 2, kernel_size = 3, padding = 1}
        self.scale = self:parameter{2, 1, 1, init = function(w) w:fill_(1) end}
      end,
      forward = function(self, x) return (x + self.conv(x)) * self.scale end,
    }
    job = strata.job{
      name = "net", device = "cpu", input = {shape = {2, 4, 4}},
      layers = {Branch{}, nn.ReLU{}, function(x) return x:flatten(1) * 2 end, nn.Linear{32, 3}},
      loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
      optimizer = {"sgd", lr = 0.1}, steps = 1,
      data = {train = function(i) return F.randn{2, 2, 4, 4}, F.tensor{0, 1} end},
    }
  )");
  Show("plan = job:plan{pipe = 2, partition = \"uniform\"}");
  EXPECT_EQ(asked, 0);
  Show(R"(
    Reader = strata.layer{
      name = "Reader",
      init = function(self) self.lstm = nn.LSTM{4, 6, batch_first = true} end,
      forward = function(self, x) local y = self.lstm(x) return y end,
    }
    plan = strata.job{
      name = "reader", device = "cpu", input = {shape = {3, 4}}, precision = "bf16",
      layers = {nn.Linear{4, 4}, Reader{}, nn.Flatten{}, nn.Linear{18, 3}},
      loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
      optimizer = {"sgd", lr = 0.1}, steps = 1,
      data = {train = function(i) return F.randn{2, 3, 4}, F.tensor{0, 1} end},
    }:plan{pipe = 1}
  )");
  Show("plan");  // includes its memory
  EXPECT_EQ(asked, 0);
  const at::Tensor x = at::ones({}).requires_grad_(true);
  at::mul(x, x).backward();  // this backward does ask
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace strata::lua
