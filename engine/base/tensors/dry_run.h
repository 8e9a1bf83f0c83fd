// DryRun: runs code on tensors without computing values and without touching their memory.
//
// Planning must know the shapes that a function of the script gives, and the memory that its passes
// take, also for layers of billions of parameters. While a DryRun lives, LibTorch's operators check
// their arguments and allocate their results, as they do otherwise, but compute nothing. So the
// shapes, the autograd graph and the account of allocated bytes (allocator.h) are the real ones,
// while the time and the resident memory do not depend on the sizes of tensors.
//
// It is not LibTorch's meta device: tensors stay on the CPU, so that code of ours and of the script
// takes the paths that it takes in training. Values of tensors are undefined.
#pragma once

#include <string>

namespace strata {

class DryRun {
 public:
  enum class Skips {
    kEverything,  ///< no operator computes; large allocations are never touched
    /// Matrix products give zeros, all else is computed. For functions that read values: on zeros
    /// as inputs, products would take nearly all of the time and give zeros too.
    kProducts,
  };

  /// Begins a dry run on this thread. Another one may begin within it. REQUIRES: the object is
  /// destroyed on this thread.
  explicit DryRun(Skips skips = Skips::kEverything);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// The first operator since the outermost DryRun began that cannot be run without values, like
  /// "aten::_local_scalar_dense" for tensor:item(); empty if there was none. The operator has
  /// thrown c10::Error, which a script may have caught.
  static const std::string& obstacle();

  /// True while this thread computes no values. A kernel of ours that reads or writes elements by
  /// their address asks this after it has allocated its results, and then returns.
  static bool IsOn();
  /// True while this thread computes no matrix products.
  static bool SkipsProducts();

  /// While an object lives, operators on this thread compute again.
  class Paused {
   public:
    Paused();
    ~Paused();
    Paused(const Paused&) = delete;
    Paused& operator=(const Paused&) = delete;

   private:
    const bool before_;
  };

 private:
  int& count_;  // of this thread's objects of this kind
};

/// Registers kernels on the meta device for operators for which LibTorch has none in C++. A dry run
/// learns the results' shapes from them. Called once, by the first DryRun. (meta_kernels.cc)
void RegisterMetaKernels();

}  // namespace strata
