// The headers of LibTorch that most of our sources include. GCC parses them once, in 20 seconds, into a precompiled
// header that every target that depends on LibTorch is compiled with (tools/rules.bzl). A source that includes
// LibTorch then compiles in about half of the time.
//
// Each source still includes what it uses. This list is only about time: a header belongs here if many sources need
// it, and none may depend on macros that some targets define and others do not, as c10d's do (USE_C10D_GLOO).
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
