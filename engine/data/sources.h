// The data sources behind OpenDataset(): one function per source, each in a file of its own, and
// the helpers that they share.
#pragma once

#include <memory>

#include "engine/data/dataset.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

/// The UCI optical digits: 1,797 grey images of shape (1, 8, 8), 10 classes. Every fifth image is
/// held out for split="test" (359); split="train" has the rest (1,438). Pixels are divided by 16,
/// so they are from 0 to 1.
std::unique_ptr<Dataset> OpenDigits(const DataSpec& spec, const DatasetContext& context);

/// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin in the folder
/// `path`, with records of one label byte and 3x32x32 pixels. Images are resized (bilinear,
/// half-pixel centres) to `size`, else to the job's input, and normalised per channel with the
/// training set's mean and deviation. path = "" gives synthetic images of that size instead;
/// description() says so.
std::unique_ptr<Dataset> OpenCifar10(const DataSpec& spec, const DatasetContext& context);

/// The bytes of text files, or their tokens. The input is a piece of `length` tokens, the target is
/// the same piece shifted by one token; both are int64 (length). `path` is a file, or a folder
/// whose regular files are read in the order of their names. Without `path` the machine's licence
/// texts are read. Pieces do not overlap; every tenth piece is held out for split="test".
std::unique_ptr<Dataset> OpenText(const DataSpec& spec, const DatasetContext& context);

/// Synthetic images: noise plus a pattern for each class, so that a network can learn the class. A
/// sample is computed from (seed, index) when it is read; nothing is stored.
std::unique_ptr<Dataset> OpenImages(const DataSpec& spec, const DatasetContext& context);

/// Synthetic token sequences. A token follows from the one before by an affine rule nine times out
/// of ten, and is random otherwise. Input and target are int64 (length); the target is the sequence
/// shifted by one token.
std::unique_ptr<Dataset> OpenTokens(const DataSpec& spec, const DatasetContext& context);

/// Images in sub-folders. The sub-folders are the classes, in the order of their names. An image is
/// decoded each time it is read.
std::unique_ptr<Dataset> OpenImageFolder(const DataSpec& spec, const DatasetContext& context);

/// Rows of a table. The input is a float32 vector: one
/// number per column of numbers, and a 0 or 1 per word of each column of words. The target is a
/// class (int64) or a number (float32 (1)).
std::unique_ptr<Dataset> OpenCsv(const DataSpec& spec, const DatasetContext& context);

// Arrays whose dim 0 counts the samples, in files of several formats.
std::unique_ptr<Dataset> OpenNpy(const DataSpec& spec, const DatasetContext& context);
/// Two arrays of one file: .npz or safetensors.
std::unique_ptr<Dataset> OpenNamedArrays(const DataSpec& spec, const DatasetContext& context);
/// MNIST: images of bytes become float32 (1, height, width) from 0 to 1, labels become int64.
std::unique_ptr<Dataset> OpenIdx(const DataSpec& spec, const DatasetContext& context);

/// Pieces of `length` tokens from a file of tokens; the target is the piece shifted by one token.
std::unique_ptr<Dataset> OpenTokenFile(const DataSpec& spec, const DatasetContext& context);

/// Records of JSON lines, Parquet, Arrow or tars. Texts or lists of tokens with a target: each text
/// and its target, cut off or padded to `length` tokens; without: all texts one after the other, in
/// pieces as OpenText() makes them. Or columns of numbers, or images, with targets.
std::unique_ptr<Dataset> OpenRecords(const DataSpec& spec, const DatasetContext& context);

/// Conversations of such records, written by a template, cut off or padded to `length` tokens. The
/// target is the input shifted by one token, and -100 where the next token is not an answer's.
std::unique_ptr<Dataset> OpenChat(const DataSpec& spec, const DatasetContext& context);

/// Samples that a function of the script returns.
std::unique_ptr<Dataset> OpenOwn(const DataSpec& spec, const DatasetContext& context);

/// Options of MakeImages().
struct ImageOptions {
  std::vector<int64_t> shape;  ///< channels, height, width
  int64_t classes = 10;
  int64_t samples = 1024;
  int64_t seed = 0;
  std::string description;
};
/// The synthetic images of OpenImages(), and of OpenCifar10() without a folder.
std::unique_ptr<Dataset> MakeImages(const ImageOptions& options);

/// True for split = "train" or no split, false for "test". Throws ConfigError for anything else.
bool IsTrain(const DataSpec& spec);
/// Returns an absolute `path` unchanged, and another one relative to the script's folder.
std::string ResolvePath(const std::string& path, const DatasetContext& context);
/// The file of the option `tokenizer`; "" if it is null, which stands for bytes.
std::string TokenizerPath(const Value& option, const DatasetContext& context);
/// Opens the tokenizer of the option `tokenizer`: that of a file, or bytes if it is null.
std::unique_ptr<Tokenizer> OpenTokenizer(const Value& option, const DatasetContext& context);
/// The content of a whole file. Throws WorldError with the path and `expected` if it cannot be
/// read.
std::string ReadFile(const std::string& path, const std::string& expected);
/// The number of samples in a split of `total`: every `k`-th sample is held out for the test split.
int64_t SplitSize(int64_t total, int64_t k, bool train);
/// The index, among all samples, of sample `index` of a split. The test split has k-1, 2k-1, ...
int64_t SplitPlace(int64_t index, int64_t k, bool train);

}  // namespace strata::data
