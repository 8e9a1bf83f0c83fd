// Indexing of tensors, compared with the results of Python.
#include "lua/tensors/index.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "lua/tensors/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class IndexTest : public TensorsTest {
 protected:
  IndexTest() { Shown("x = F.arange(24):view(2, 3, 4)"); }
};

TEST_F(IndexTest, TakesWhatPyTorchTakes) {
  const std::vector<Example> examples = {
      {"x[1][2]", "tensor([20, 21, 22, 23])"},
      {"x[-1][-3]", "tensor([12, 13, 14, 15])"},
      {"x[{0, 1}]", "tensor([4, 5, 6, 7])"},                           // x[0, 1]
      {"x[{1, 2, -1}]:item()", "23"},                                  // x[1, 2, -1]
      {"x[{0, {1, 3}}].shape", "{2, 4}"},                              // x[0, 1:3]
      {"x[{0, 0, {2, 5}}]", "tensor([2, 3])"},                         // x[0, 0, 2:5]
      {"x[{0, 0, {1}}]", "tensor([1, 2, 3])"},                         // x[0, 0, 1:]
      {"x[{0, 0, {nil, 2}}]", "tensor([0, 1])"},                       // x[0, 0, :2]
      {"x[{0, 0, {nil, -1}}]", "tensor([0, 1, 2])"},                   // x[0, 0, :-1]
      {"x[{0, 0, {0, 4, 2}}]", "tensor([0, 2])"},                      // x[0, 0, 0:4:2]
      {"x[{0, 0, {nil, nil, 3}}]", "tensor([0, 3])"},                  // x[0, 0, ::3]
      {"x[{{}, 0, 0}]", "tensor([ 0, 12])"},                           // x[:, 0, 0]
      {"x[{'...', 0}][1]", "tensor([12, 16, 20])"},                    // x[..., 0]
      {"x[{{0, 1}}].shape", "{1, 3, 4}"},                              // x[0:1]
      {"x[F.tensor{1, 0, 1}].shape", "{3, 3, 4}"},                     // x[idx]
      {"x[{0, F.tensor{2, 0}, 1}]", "tensor([9, 1])"},                 // x[0, idx, 1]
      {"x[x:gt(21)]", "tensor([22, 23])"},                             // x[mask]
      {"x[{0, F.tensor{true, false, true}, 3}]", "tensor([ 3, 11])"},  // x[0, mask, 3]
      {"x[{}] == x", "true"},
      {"x[{0, 0, {3, 2}}]:numel()", "0"},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(ErrorOf(example.text), "no error, but " + example.shown) << example.text;
  }
}

TEST_F(IndexTest, SetsElements) {
  Shown("y = F.zeros{2, 3}");
  Shown("y[0] = 1 y[{1, {1, 3}}] = F.tensor{5, 6} y[{1, 0}] = -2.5");
  EXPECT_EQ(Shown("y"),
            "tensor([[ 1.0000,  1.0000,  1.0000],\n        [-2.5000,  5.0000,  6.0000]])");
  Shown("y[y:gt(1)] = 0 y[{{}, F.tensor{0, 2}}] = F.tensor({{7}, {8}}, {dtype=\"float32\"})");
  EXPECT_EQ(Shown("y"), "tensor([[7., 1., 7.],\n        [8., 0., 8.]])");
  Shown("b = F.tensor{false, false} b[1] = true row = y[1] row[1] = 9");
  EXPECT_EQ(Shown("b"), "tensor([false,  true])");
  EXPECT_EQ(Shown("y[{1, 1}]:item()"), "9") << "a row is a view";
}

TEST_F(IndexTest, GradientsFlow) {
  Shown("w = F.ones{3}:requires_grad_() z = w * 2 z[1] = w[0] * 5");
  Shown("(z[{{1}}]:sum() + w[F.tensor{2, 2}]:sum()):backward()");
  EXPECT_EQ(Shown("w.grad"), "tensor([5., 0., 4.])");
}

TEST_F(IndexTest, ErrorsSayWhatCame) {
  const std::vector<Example> examples = {
      {"x[2]",
       "x[...] of int64 (2, 3, 4), which counts from 0: index 2 is out of bounds for dimension 0"},
      {"x[{0, -4}]", "index -4 is out of bounds for dimension 1 with size 3"},
      {"x[{0, 0, 0, 0}]", "too many indices"},
      {"x[0.5]", "whole number, got the number 0.5"},
      {"x[true]", "a range {start, stop, step}, a tensor"},
      {"x[{0, 'a'}]", "got the string \"a\""},
      {"x[{nil, 0}]", "position 1 is nil; {} is all of a dim"},
      {"x[{0, {1, 2, 3, 4}}]", "a range {start, stop, step}"},
      {"x[{0, {stop=2}}]", "a range {start, stop, step}"},
      {"x[{0, {0.5, 2}}]", "a whole number in the range"},
      {"x[{{0, 2, 0}}]", "counts from 0: slice step cannot be zero"},
      {"x[{{2, 0, -1}}]", "counts from 0: step must be greater than zero"},
      {"x[{dim=0}]", "a position for each dim"},
      {"x[F.tensor{5}]", "index 5 is out of bounds"},
      {"x[F.tensor{0.5}]", "indices must be"},
      {"x[F.tensor{true, false, true}]", "mask"},
      {"F.tensor(1)[0]", "invalid index of a 0-dim tensor"},
      {"x[7] = 1", "index 7 is out of bounds"},
      {"x[0] = 'a'", "expected a number or a tensor, got the string \"a\""},
      {"x[0] = F.zeros{5}", "must match the existing size"},
      {"x.y = 1", "a tensor's y cannot be set; x[{0, 1}] = v sets elements"},
  };
  for (const Example& example : examples) {
    EXPECT_THAT(ErrorOf(example.text), HasSubstr(example.shown)) << example.text;
  }
}

}  // namespace
}  // namespace strata::lua
