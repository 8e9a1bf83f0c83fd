// Tensors as Lua values, and the operators on them.
#include "lua/tensors/tensors.h"

#include <ATen/Parallel.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/core.h"
#include "lua/core/state.h"
#include "lua/tensors/call.h"
#include "lua/tensors/operators.h"
#include "lua/tensors/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST_F(TensorsTest, WithoutRanksNothingIsExchanged) {
  Shown("x = F.arange(4)");
  for (const char* name :
       {"copy", "reduce", "gather", "scatter", "gather_summed", "reduce_scatter"}) {
    EXPECT_EQ(Shown(std::string("strata.model.") + name + "(x) == x"), "true") << name;
  }
  EXPECT_EQ(Shown("{strata.model.size(), strata.model.rank()}"), "{1, 0}");
  EXPECT_THAT(ErrorOf("strata.model.redcue(x)"), HasSubstr("did you mean \"reduce\"?"));
  EXPECT_THAT(ErrorOf("strata.model.gather(x, 1)"), HasSubstr("(4,) has no dim 1"));
  EXPECT_THAT(ErrorOf("strata.model.copy(3)"), HasSubstr("expected a tensor"));
}

TEST_F(TensorsTest, WhatIsMadeOfNoTensorIsWhereALayersInputsAre) {
  Shown("x = F.ones{2}");
  {
    const FactoryDevice there(c10::kMeta);
    for (const char* made : {"F.arange(4)", "F.zeros{2}", "F.randn{2}", "F.tensor{1, 2}"}) {
      EXPECT_EQ(Shown(Str(made, ".device")), "\"meta\"") << made;
    }
    EXPECT_EQ(Shown("F.zeros({2}, {device=\"cpu\"}).device"), "\"cpu\"");
    EXPECT_EQ(Shown("F.zeros_like(x).device"), "\"cpu\"");
  }
  EXPECT_EQ(Shown("F.zeros{2}.device"), "\"cpu\"");
}

TEST_F(TensorsTest, OperatorsGiveWhatPyTorchGives) {
  const std::vector<Example> examples = {
      {"F.arange(4)", "tensor([0, 1, 2, 3])"},
      {"F.arange(4):add(3)", "tensor([3, 4, 5, 6])"},
      {"F.arange(4):add(3).dtype", "\"int64\""},
      {"F.arange(4) + 0.5", "tensor([0.5000, 1.5000, 2.5000, 3.5000])"},
      {"F.arange(10, {dtype=\"float64\"}).dtype", "\"float64\""},
      {"F.arange(0, 1, 0.25)", "tensor([0.0000, 0.2500, 0.5000, 0.7500])"},
      {"F.einsum(\"ij,jk\", F.ones{1, 2}, F.ones{2, 1})", "tensor([[2.]])"},
      {"F.einsum(\"ij,jk\", {F.ones{1, 2}, F.ones{2, 1}})", "tensor([[2.]])"},
      {"#F.meshgrid(F.arange(2), F.arange(3), {indexing=\"ij\"})", "2"},
      {"F.full({2}, true).dtype", "\"bool\""},
      {"F.full({2}, 1).dtype", "\"int64\""},
      {"F.full({2}, 1.5).dtype", "\"float32\""},
      {"F.full({2}, 1, {dtype=\"int64\"})", "tensor([1, 1])"},
      {"F.zeros{2, 3}.shape", "{2, 3}"},
      {"F.zeros(2, 3).shape", "{2, 3}"},
      {"F.ones{2}", "tensor([1., 1.])"},
      {"F.arange(12):view{4, 3}.shape", "{4, 3}"},
      {"F.arange(12):view(4, 3).shape", "{4, 3}"},
      {"F.arange(6):reshape{2, 3}:t():tolist()", "{{0, 3}, {1, 4}, {2, 5}}"},
      {"F.arange(6):view(2, 3):sum():item()", "15"},
      {"F.arange(6):view(2, 3):sum(0)", "tensor([3, 5, 7])"},
      {"F.arange(6):view(2, 3):sum{{0, 1}, keepdim=true}.shape", "{1, 1}"},
      {"F.arange(6):view(2, 3):to(\"float32\"):mean({dim=1})", "tensor([1., 4.])"},
      {"F.cat{F.ones{1}, F.zeros{1}}", "tensor([1., 0.])"},
      {"F.cat({F.ones{1}, F.zeros{1}}, 0)", "tensor([1., 0.])"},
      {"F.softmax(F.zeros{2}, 0)", "tensor([0.5000, 0.5000])"},
      {"F.softmax{F.zeros{2}, dim=0}", "tensor([0.5000, 0.5000])"},
      {"F.relu(F.tensor{-1.5, 2.5})", "tensor([0.0000, 2.5000])"},
      {"F.tensor{1.5, -2}:abs()", "tensor([1.5000, 2.0000])"},
      {"#F.arange(7)", "7"},
      {"F.arange(5)[2]:item()", "2"},
      {"F.arange(5)[-1]:item()", "4"},
      {"F.arange(6):view(3, 2)[1]", "tensor([2, 3])"},
      {"F.arange(3) == F.arange(3)", "true"},
      {"F.arange(3) == F.arange(4)", "false"},
      {"F.arange(3):eq(1)", "tensor([false,  true, false])"},
      {"-F.arange(3)", "tensor([ 0, -1, -2])"},
      {"2 - F.arange(3)", "tensor([2, 1, 0])"},
      {"6 / F.tensor{2, 3}", "tensor([3., 2.])"},
      {"F.arange(3) ^ 2", "tensor([0, 1, 4])"},
      {"F.arange(4) % 2", "tensor([0, 1, 0, 1])"},
      {"F.arange(4):narrow(0, 1, 2)", "tensor([1, 2])"},
      {"F.arange(4):split(2)[2]", "tensor([2, 3])"},
      {"(F.tensor{3, 1, 2}:sort())", "tensor([1, 2, 3])"},
      {"select(2, F.tensor{3, 1, 2}:sort())", "tensor([1, 2, 0])"},
      {"F.tensor{3, 1, 2}:max():item()", "3"},
      {"F.where(F.tensor{true, false}, 1.5, 2.5)", "tensor([1.5000, 2.5000])"},
      {"F.zeros({2}, {dtype=\"int32\"}).dtype", "\"int32\""},
      {"F.arange(3):to(\"float64\").dtype", "\"float64\""},
      {"F.arange(3).device", "\"cpu\""},
      {"F.max_pool2d(F.arange(16, {dtype=\"float32\"}):view(1, 1, 4, 4), 2):tolist()",
       "{{{{5, 7}, {13, 15}}}}"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(ErrorOf(example.text), "no error, but " + example.shown) << example.text;
  }
}

TEST_F(TensorsTest, GradientsFlow) {
  Shown("x = F.tensor({1.5, 2, 3}, {requires_grad=true})");
  Shown("(x * x):sum():backward()");
  EXPECT_EQ(Shown("x.grad"), "tensor([3., 4., 6.])");
  EXPECT_EQ(Shown("x.requires_grad"), "true");
  EXPECT_EQ(Shown("F.ones{1}.grad"), "nil");
  EXPECT_EQ(Shown("strata.no_grad(function() return (x * 2).requires_grad end)"), "false");
  EXPECT_EQ(Shown("(x * 2).requires_grad"), "true") << "the guard has ended";
  EXPECT_THAT(ErrorOf("strata.no_grad(function() error('mine') end)"), HasSubstr("mine"));
  EXPECT_EQ(Shown("(x * 2).requires_grad"), "true") << "also after an error";
}

TEST_F(TensorsTest, TellsAndCastsAsPyTorch) {
  Shown("x = F.arange(6):view(2, 3)");
  const std::vector<Example> examples = {
      {"x:numel()", "6"},
      {"x:size()", "{2, 3}"},
      {"x:size(1)", "3"},
      {"x:size(-2)", "2"},
      {"{x:dim(), x.ndim}", "{2, 2}"},
      {"x.T", "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])"},
      {"x:view(1, 2, 3).mT.shape", "{1, 3, 2}"},
      {"x:float().dtype", "\"float32\""},
      {"x:double().dtype", "\"float64\""},
      {"x:half().dtype", "\"float16\""},
      {"x:bfloat16().dtype", "\"bfloat16\""},
      {"x:int().dtype", "\"int32\""},
      {"x:to(\"float16\").dtype", "\"float16\""},
      {"x:to(\"cpu\").dtype", "\"int64\""},
      {"x:half():to(x.device).dtype", "\"float16\""},
      {"x:to{device=\"cpu\", dtype=\"float64\"}.dtype", "\"float64\""},
      {"x:to{device=\"cpu\", copy=true}[0]", "tensor([0, 1, 2])"},
      {"x:to{device=\"meta\"}.device", "\"meta\""},
      {"x:to(F.ones{1}).dtype", "\"float32\""},
      {"x:cpu():size(0)", "2"},
      {"(x * 0.5):long()[1]", "tensor([1, 2, 2])"},
      {"x:bool()[0]", "tensor([false,  true,  true])"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(ErrorOf(example.text), "no error, but " + example.shown) << example.text;
  }
  EXPECT_THAT(ErrorOf("x:size(2)"), HasSubstr("int64 (2, 3) has no dim 2"));
  EXPECT_THAT(ErrorOf("x[0].mT"), HasSubstr("mT: "));
  EXPECT_THAT(ErrorOf("x.shape = 1"), HasSubstr("shape cannot be set"));
  EXPECT_THAT(ErrorOf("x:view(x.shape[0], -1)"),
              HasSubstr("x.shape is a list of Lua, which counts from 1: x.shape[1] is dim 0; got "
                        "the number 0; x:size(dim) counts as PyTorch does"));
  EXPECT_THAT(ErrorOf("x.shape[-1]"), HasSubstr("got the number -1"));
}

TEST_F(TensorsTest, ListsBecomeTensors) {
  EXPECT_EQ(Shown("F.tensor{{1, 2}, {3, 4}}.dtype"), "\"int64\"");
  EXPECT_EQ(Shown("F.tensor{{1, 2}, {3, 4.5}}.shape"), "{2, 2}");
  EXPECT_EQ(Shown("F.tensor{true, false}.dtype"), "\"bool\"");
  EXPECT_EQ(Shown("F.tensor(5):item()"), "5");
  EXPECT_EQ(Shown("F.tensor({1, 2}, {dtype=\"float32\"})"), "tensor([1., 2.])");
  EXPECT_EQ(Shown("F.tensor({}).shape"), "{0}");
  EXPECT_THAT(ErrorOf("F.tensor{{1, 2}, {3}}"), HasSubstr("one length"));
  EXPECT_THAT(ErrorOf("F.tensor{1, {2}}"), HasSubstr("one length"));
  EXPECT_THAT(ErrorOf("F.tensor{1, 'a'}"), HasSubstr("expected numbers"));
  EXPECT_THAT(ErrorOf("F.tensor{1, nil, 3}"), HasSubstr("position 2 of a list of 3 is nil"));
  EXPECT_THAT(ErrorOf("F.tensor{{1, 2}, {nil, 3}}"), HasSubstr("position 1 of a list of 2 is nil"));
  EXPECT_THAT(ErrorOf("F.tensor({1}, {dtyp=\"int64\"})"), HasSubstr("did you mean \"dtype\"?"));
}

TEST_F(TensorsTest, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(ErrorOf("F.flaten(F.ones{1})"), HasSubstr("did you mean \"flatten\"?"));
  EXPECT_THAT(ErrorOf("F.ones{1}:flaten()"), HasSubstr("did you mean \"flatten\"?"));
  EXPECT_THAT(ErrorOf("F.relu('a')"), AllOf(HasSubstr("Tensor input"), HasSubstr("\"a\"")));
  EXPECT_THAT(ErrorOf("F.exp()"), HasSubstr("needs Tensor self"));
  EXPECT_THAT(ErrorOf("F.zeros({2, nil, 3})"), HasSubstr("expects int[] size"));
  EXPECT_THAT(ErrorOf("F.exp(F.ones{1}, 2)"), HasSubstr("takes 1 argument, got 2"));
  EXPECT_THAT(ErrorOf("F.ones{1}:flatten('a')"),
              AllOf(HasSubstr("does not take"), HasSubstr("int start_dim=0")));
  EXPECT_THAT(ErrorOf("F.relu(F.ones{1}, {inplac=true})"), HasSubstr("inplac"));
  EXPECT_THAT(ErrorOf("F.ones{2}:view(3)"), HasSubstr("view: "));
  EXPECT_THAT(ErrorOf("F.ones{2} + 'a'"), HasSubstr("add"));
  EXPECT_THAT(ErrorOf("F.ones{2}:item()"), HasSubstr("one element"));
  EXPECT_THAT(ErrorOf("F.ones{2}:to('float33')"), HasSubstr("float3"));
  EXPECT_THAT(ErrorOf("F.ones({2}, {dtype=\"int63\"})"), HasSubstr("int63"));
  EXPECT_THAT(ErrorOf("F.ones{2}:backward()"), HasSubstr("backward"));
  const std::vector<std::pair<const char*, const char*>> classes = {
      {"LocalResponseNorm",
       "; as a function: function(x) return F.local_response_norm(x, ...) end"},
      {"SoftMarginLoss",
       "; as a function: function(output, target) return F.soft_margin_loss(output, target) end"},
      {"Softmin", "; as a function: function(x) return F.softmin(x, ...) end"},
      {"relu", "; did you mean \"ReLU\"?"},
      {"Lineer", "; did you mean \"Linear\"?"},
      {"inti", "; did you mean \"init\"?"},
      {"Module", "; layers of your own are made by strata.layer"},
      {"ModuleList", "; a table in self keeps what is in it: self.heads = {nn.Linear{4, 4}}"},
      {"Whatever", ""}};
  for (const auto& [name, hint] : classes) {
    EXPECT_THAT(ErrorOf(Str("nn.", name)), EndsWith(Str("there is no nn.", name, hint)));
  }
  for (const char* comparison : {"F.ones{2} > 0", "1 <= F.ones{2}", "F.ones{2} < F.ones{2}"}) {
    EXPECT_THAT(ErrorOf(comparison), HasSubstr("tensors are compared by x:lt(y)")) << comparison;
  }
  for (const char* wrong : {"F.ones{2}:view(3)", "F.linear(F.ones{2}, F.ones{3, 5})",
                            "F.conv2d(F.ones{1}, F.ones{1})"}) {
    EXPECT_THAT(ErrorOf(wrong), AllOf(Not(HasSubstr("Exception raised")), Not(HasSubstr("c10::"))));
  }
  Shown("meta = F.ones({1}, {device=\"meta\"})");
  for (const char* wrong : {"meta:item()", "meta:tolist()", "print(meta)", "meta",
                            "strata.tensors.save(\"f.npy\", F.ones{2}:to_sparse())"}) {
    EXPECT_THAT(ErrorOf(wrong),
                AllOf(Not(HasSubstr("no error")), Not(HasSubstr("Exception raised"))))
        << wrong;
  }
}

TEST_F(TensorsTest, ABooleanIsNoTensorOfThem) {
  Shown("x = F.arange(3)");
  const char* kHint = "x:eq(y) and x:ne(y) compare the elements";
  for (const char* line :
       {"x * (x ~= 0)", "(x == 0) + x", "x - true", "x / (x == 0)", "x ^ true", "x % true",
        "x[{x == 0}]", "x[x ~= 0]", "x:masked_fill(x == 0, 1)", "F.softmax(x == 0, 0)"}) {
    EXPECT_THAT(ErrorOf(line), HasSubstr(kHint)) << line;
  }
  EXPECT_THAT(ErrorOf("x * (x ~= 0)"), HasSubstr("mul expects tensors and numbers, got true"));
  Shown("q = F.zeros{1, 1, 2, 2}");
  EXPECT_THAT(ErrorOf("F.scaled_dot_product_attention(q, q, q, {attn_mask = q == 0})"),
              AllOf(HasSubstr("Tensor? attn_mask"), HasSubstr(kHint)));
  EXPECT_THAT(ErrorOf("x:backward(x == 0)"), HasSubstr(kHint));
  EXPECT_THAT(ErrorOf("x:exp(true)"), Not(HasSubstr(kHint)));
  EXPECT_EQ(Shown("F.full({2}, true):all():item()"), "true");
}

TEST_F(TensorsTest, SeveralTensorsInAListAreTakenApart) {
  EXPECT_EQ(Shown("a, b = unpack(F.arange(4):split(2))"), "");
  EXPECT_EQ(Shown("{a, b}"), "{tensor([0, 1]), tensor([2, 3])}");
  Shown("q, k = F.arange(4):split(2)");
  EXPECT_THAT(ErrorOf("q:view(2, 1)"),
              HasSubstr("a list of 2 tensors has no \"view\"; local a, b = unpack(list)"));
  for (const char* member : {"q.shape", "q:float()", "q:sum()", "q.T"}) {
    EXPECT_THAT(ErrorOf(member), HasSubstr("a list of 2 tensors has no")) << member;
  }
  EXPECT_THAT(Shown("F.unbind?"), EndsWith("-> Tensor[], a list: unpack(...)"));
  // For other keys the list is a normal table.
  EXPECT_EQ(Shown("{#q, q[3] == nil, q.mine == nil, k == nil}"), "{2, true, true, true}");
  EXPECT_EQ(Shown("q"), "{tensor([0, 1]), tensor([2, 3])}");
  Shown("q.view, n = 'mine', 0 for i, x in ipairs(q) do n = n + x:sum():item() end");
  EXPECT_EQ(Shown("{q.view, n}"), "{\"mine\", 6}");
  Shown("q.view = nil");
  EXPECT_EQ(Shown("F.cat(q)"), "tensor([0, 1, 2, 3])");
}

TEST_F(TensorsTest, WhatOpensFilesIsNotReachable) {
  for (const char* name : {"from_file", "save", "load", "set_", "record_stream", "align_tensors"}) {
    EXPECT_THAT(ErrorOf(std::string("F.") + name), HasSubstr("there is no operator")) << name;
    EXPECT_EQ(FindOperator(name), nullptr) << name;
  }
}

TEST_F(TensorsTest, WhatIsInternalNamesThePublicFunction) {
  const std::vector<Example> examples = {
      {"F._stack", "use F.stack"},
      {"F._softmax_backward_data", "use F.softmax and tensor:backward()"},
      {"F.max_pool2d_with_indices_backward", "use F.max_pool2d_with_indices and tensor:backward()"},
      {"F.max_pool3d_with_indices_backward", "use F.max_pool3d_with_indices"},
      {"F.adaptive_max_pool2d_backward", "use F.adaptive_max_pool2d"},
      {"F._embedding_bag_dense_backward", "use F.embedding_bag"},
      {"F._thnn_differentiable_lstm_cell_backward", "use F.lstm_cell"},
      {"F._sparse_coo_tensor_unsafe", "use F.sparse_coo_tensor"},
      {"F.native_batch_norm", "use F.batch_norm"},
      {"F.segment_reduce", "internal to LibTorch, which trusts its arguments"},
      {"F.ones{1}:_softmax()", "use F.softmax"},
      {"F._cudnn_rnn", "\"_cudnn_rnn\" is internal to LibTorch"}};
  for (const Example& example : examples) {
    EXPECT_THAT(ErrorOf(example.text), HasSubstr(example.shown)) << example.text;
  }
  EXPECT_EQ(Shown("F._foreach_add({F.ones{1}}, 1)"), "{tensor([2.])}") << "torch._foreach_add";
}

TEST_F(TensorsTest, SparseTensorsCheckTheirIndices) {
  Shown(
      "function coo(i) return F.sparse_coo_tensor(F.tensor{{0, i}}, F.ones{2}, {3}):to_dense() "
      "end");
  EXPECT_EQ(Shown("coo(2)"), "tensor([1., 0., 1.])");
  EXPECT_THAT(ErrorOf("coo(2 ^ 40)"), HasSubstr("size is 3 but found index"));
  EXPECT_THAT(ErrorOf("coo(-1)"), HasSubstr("negative index"));
}

/// The values that one round of calls uses as arguments.
struct Filler {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  int list_size;  ///< length of lists without a fixed size
  int64_t number;
  /// The value of all elements. If it is not 0, all tensors but the first have integers: indices.
  int64_t element = 0;
};

at::Tensor FillTensor(const Filler& filler, bool first) {
  if (filler.element == 0) return at::empty(filler.shape, filler.dtype);
  if (first) return at::ones(filler.shape, filler.dtype);
  return at::full(filler.shape, filler.element, at::kLong);
}

/// A value of the type, as small as possible; no value if none can be made.
std::optional<c10::IValue> Fill(const c10::TypePtr& type, const Filler& filler, bool first) {
  using c10::TypeKind;
  switch (type->kind()) {
    case TypeKind::OptionalType:
      return c10::IValue();
    case TypeKind::TensorType:
      return FillTensor(filler, first);  // a new one, since an operator may change it
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return filler.number;
    case TypeKind::NumberType:
      return c10::IValue(filler.number);
    case TypeKind::FloatType:
      return static_cast<double>(filler.number);
    case TypeKind::BoolType:
      return false;
    case TypeKind::StringType:
      return std::string();
    case TypeKind::ScalarTypeType:
      return c10::IValue(at::kFloat);
    case TypeKind::LayoutType:
      return c10::IValue(at::kStrided);
    case TypeKind::MemoryFormatType:
      return c10::IValue(at::MemoryFormat::Contiguous);
    case TypeKind::DeviceObjType:
      return c10::IValue(at::Device(at::kCPU));
    case TypeKind::ListType: {
      c10::impl::GenericList list(type->expectRef<c10::ListType>().getElementType());
      for (int i = 0; i < filler.list_size; ++i) {
        const auto element = Fill(list.elementType(), filler, first);
        if (!element) return std::nullopt;
        list.push_back(*element);
      }
      return c10::IValue(std::move(list));
    }
    default:
      return std::nullopt;
  }
}

/// Calls the overload; its result or error is ignored.
void CallWith(const c10::OperatorHandle& overload, const Filler& filler) {
  torch::jit::Stack stack;
  for (const c10::Argument& argument : overload.schema().arguments()) {
    auto value = Fill(argument.real_type(), filler, stack.empty());
    if (!value) return;
    stack.push_back(std::move(*value));
  }
  try {
    overload.callBoxed(&stack);
  } catch (const std::exception&) {
  }
}

/// Calls the operators from number `first` on; `now` is the number of the current one.
void CallOperators(size_t first, std::atomic<size_t>& now) {
  const std::vector<std::string>& names = OperatorNames();
  const Filler fillers[] = {{{0}, at::kFloat, 0, 0},
                            {{0}, at::kFloat, 1, 1},
                            {{0, 0}, at::kFloat, 2, -1},
                            {{0}, at::kLong, 2, 0},
                            {{3}, at::kFloat, 1, 1, int64_t{1} << 40},
                            {{3}, at::kFloat, 1, 1, -(int64_t{1} << 40)},
                            {{2, 2}, at::kFloat, 2, 1, int64_t{1} << 40},
                            {{1, 2, 2}, at::kFloat, 2, 1, int64_t{1} << 40},
                            {{1, 2, 2, 2}, at::kFloat, 2, 1, int64_t{1} << 40},
                            {{1, 2, 2, 2}, at::kFloat, 2, 1, -(int64_t{1} << 40)},
                            {{1, 2, 2, 2, 2}, at::kFloat, 3, 1, int64_t{1} << 40}};
  for (now = first; now < names.size(); ++now) {
    const Operator* op = FindOperator(names[now]);
    if (op == nullptr) continue;  // it is a body of functional.lua
    // A polynomial's degree would be the large element, and its loop would take very long.
    const bool counts = names[now].find("polynomial") != std::string::npos;
    for (const c10::OperatorHandle& overload : op->overloads) {
      for (const Filler& filler : fillers) {
        if (filler.element == 0 || !counts) CallWith(overload, filler);
      }
    }
  }
}

// The operators run in a child, which stores its position in shared memory. If it crashes, the
// position tells which operator did it.
TEST_F(TensorsTest, EveryOperatorSurvivesEmptyTensorsAndBadIndices) {
  void* shared = ::mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& now = *new (shared) std::atomic<size_t>(0);
  const std::vector<std::string>& names = OperatorNames();
  std::vector<std::string> deadly;
  for (size_t first = 0; first < names.size(); first = now + 1) {
    const pid_t child = ::fork();
    if (child == 0) {
      at::set_num_threads(1);  // a pool of threads does not survive a fork
      ::alarm(100);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDOUT_FILENO), ::dup2(null, STDERR_FILENO);
      CallOperators(first, now);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (status == 0) break;
    deadly.push_back(Str(names[now], WIFSIGNALED(status) ? " signal " : " exit ",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
  }
  EXPECT_THAT(deadly, testing::IsEmpty());
  ::munmap(shared, sizeof(std::atomic<size_t>));
}

TEST_F(TensorsTest, EveryOperatorRefusesNothingAndWords) {
  // Whatever the schema, wrong arguments must give an error and never a crash.
  for (const std::string& name : OperatorNames()) {
    const std::string error = ErrorOf("F['" + name + "']('nonsense', {}, 'words', print)");
    EXPECT_THAT(error, Not(HasSubstr("no error"))) << name;
    EXPECT_LT(error.size(), 4000u) << name;
  }
  EXPECT_GT(OperatorNames().size(), 1000u);
}

TEST_F(TensorsTest, PrintsAsPyTorch) {
  EXPECT_EQ(Shown("F.tensor(3)"), "tensor(3)");
  EXPECT_EQ(Shown("F.tensor(2.5)"), "tensor(2.5000)");
  EXPECT_EQ(Shown("F.tensor{{1.5, -2}, {30, 4}}"),
            "tensor([[ 1.5000, -2.0000],\n        [30.0000,  4.0000]])");
  EXPECT_EQ(Shown("F.zeros{0, 3}"), "tensor([], size=(0, 3))");
  EXPECT_THAT(Shown("F.arange(2000)"),
              AllOf(HasSubstr("0,    1,    2, ..., 1997, 1998, 1999"), HasSubstr("(2000,)")));
  EXPECT_EQ(Shown("F.ones({2}, {dtype=\"float64\"})"), "tensor([1., 1.], dtype=float64)");
  EXPECT_THAT(Shown("F.tensor{1e-10, 1}"), HasSubstr("1.0000e-10"));
  EXPECT_THAT(Shown("F.tensor{0/0, 1/0}"), AllOf(HasSubstr("nan"), HasSubstr("inf")));
}

/// The largest memory that this process has used so far, in bytes.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

TEST_F(TensorsTest, MemoryIsGivenBackWhileAScriptRuns) {
  // 1.2 GB are made in all. Lua's collector alone would see some kilobytes and free nothing.
  Shown("x = F.zeros{1024, 1024}");
  const int64_t before = PeakMemory();
  Shown("for i = 1, 300 do local x = F.zeros{1024, 1024} end");
  EXPECT_LT(PeakMemory() - before, 300 << 20);
}

}  // namespace
}  // namespace strata::lua
