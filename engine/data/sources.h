// The sources behind OpenDataset(). One function a source, one file each.
#pragma once

#include <memory>

#include "engine/data/dataset.h"

namespace strata::data {

/// UCI optical digits: 1,797 grey images of 8x8, 10 classes. Every fifth is held out for
/// split="test" (359), the rest is split="train" (1,438). Pixels are divided by 16.
std::unique_ptr<Dataset> OpenDigits(const DataSpec& spec, const DatasetContext& context);

/// CIFAR-10's binary version: data_batch_1.bin ... data_batch_5.bin, test_batch.bin in the folder
/// `path`; records of one label byte and 3x32x32 pixels. Images are normalised per channel with the
/// training set's mean and deviation and resized (bilinear, half-pixel centres) to `size`, or to
/// the job's input. path = "" gives synthetic images of that size and says so in description().
std::unique_ptr<Dataset> OpenCifar10(const DataSpec& spec, const DatasetContext& context);

/// Bytes of text files: input = `length` bytes, target = the same moved on by one; 256 classes.
/// `path` is a file or a folder (its regular files in the order of their names); left out, the
/// machine's own licence texts. Pieces do not overlap; every tenth is held out for split="test".
std::unique_ptr<Dataset> OpenText(const DataSpec& spec, const DatasetContext& context);

/// Images of noise with a pattern per class, so that a network can learn them. Made from
/// (seed, index) when read; nothing is kept.
std::unique_ptr<Dataset> OpenImages(const DataSpec& spec, const DatasetContext& context);

/// Token sequences that follow an affine rule nine times out of ten. input and target are int64
/// (length), the target moved on by one.
std::unique_ptr<Dataset> OpenTokens(const DataSpec& spec, const DatasetContext& context);

/// Synthetic images, for OpenImages and for CIFAR-10 without a folder.
struct ImageOptions {
  std::vector<int64_t> shape;  ///< channels, height, width
  int64_t classes = 10;
  int64_t samples = 1024;
  int64_t seed = 0;
  std::string description;
};
std::unique_ptr<Dataset> MakeImages(const ImageOptions& options);

/// true for split = "train", false for "test"; the field tables allow nothing else.
bool IsTrain(const DataSpec& spec);
/// `path` if absolute, else below the script's folder.
std::string ResolvePath(const std::string& path, const DatasetContext& context);
/// A whole file. Throws WorldError naming it, and `expected` when it cannot be read.
std::string ReadFile(const std::string& path, const std::string& expected);
/// The samples that a split with every `k`-th held out has, of `total`.
int64_t SplitSize(int64_t total, int64_t k, bool train);
/// Place of sample `index` of the split among all: the held-out ones are k-1, 2k-1, ...
int64_t SplitPlace(int64_t index, int64_t k, bool train);

}  // namespace strata::data
