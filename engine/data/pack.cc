// The step pack: puts several documents into each row of `length` tokens.
//
// The documents are taken in an order drawn from `seed`, each into that of the open rows which it
// fills best (best fit). If none has room, a row is opened; if then more than kOpenRows are open,
// the fullest is closed. The window keeps the cost at kOpenRows comparisons for a document; and in
// a random order long documents do not meet only long ones, as they would if sorted by length. The
// waste is what closed rows lack. Of 8,000 documents in rows of 2,048 tokens it was 0.3 % for
// log-normal lengths around 200, 0.7 % for uniform ones up to half a row, and 1.7 % up to a whole
// row; if all are a little longer than half a row, it is that half, as of any packing. notes()
// states it.
//
// The rows are made once, when the data is opened, so an epoch is an order of rows as of any other
// samples, and a training resumes in the middle of one. All epochs have the same rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/sample_order.h"
#include "engine/data/step.h"
#include "engine/data/steps.h"
#include "engine/layers/targets.h"

namespace strata::data {
namespace {

constexpr size_t kOpenRows = 256;

/// Tokens of a document that lie in one row: the whole document, or a part if it was split.
struct Piece {
  int64_t document;
  int64_t begin;  ///< its first token in the document
  int64_t tokens;
};

struct Row {
  std::vector<Piece> pieces;
  int64_t room;
};

/// Puts pieces into rows of `length` tokens, as the top of this file says.
std::vector<Row> BestFit(const std::vector<Piece>& pieces, int64_t length) {
  std::vector<Row> closed, open;
  const auto by_room = [](const Row& a, const Row& b) { return a.room < b.room; };
  for (const Piece& piece : pieces) {
    auto row = open.end();
    for (auto each = open.begin(); each != open.end(); ++each) {
      if (each->room < piece.tokens) continue;
      if (row == open.end() || each->room < row->room) row = each;
    }
    if (row == open.end()) {
      if (open.size() == kOpenRows) {
        const auto fullest = std::min_element(open.begin(), open.end(), by_room);
        closed.push_back(std::move(*fullest));
        open.erase(fullest);
      }
      row = open.insert(open.end(), Row{{}, length});
    }
    row->pieces.push_back(piece);
    row->room -= piece.tokens;
    if (row->room > 0) continue;
    closed.push_back(std::move(*row));
    open.erase(row);
  }
  std::ranges::move(open, std::back_inserter(closed));
  return closed;
}

/// The number of tokens of a document.
int64_t LengthOf(const PlainSample& document) { return document.input.specs[0].shape[0]; }

/// Copies `count` numbers, from the number `begin` on, to `to`.
void CopyNumbers(const std::string& bytes, int64_t begin, int64_t count, int64_t* to) {
  std::memcpy(to, bytes.data() + static_cast<size_t>(begin) * sizeof(*to),
              static_cast<size_t>(count) * sizeof(*to));
}

class Pack : public Step {
 public:
  Pack(const Value& options, std::shared_ptr<const Dataset> of)
      : Step(std::move(of), Str("packed into rows of ", options["length"].as_int(), " tokens")),
        length_(options["length"].as_int()),
        splits_(options["long"] == Value("split")) {
    const TensorSpec tokens = {{1}, DType::kInt64};
    const TensorSpecs inputs = this->of().inputs(), targets = this->of().targets();
    if (!AreAlikeButForDim0(inputs, {tokens}) || !AreAlikeButForDim0(targets, {tokens})) {
      throw ConfigError(Str("pack expects documents of int64 tokens and targets, both as long as ",
                            "the document, got ", ToString(inputs, ", ", "nothing"), " -> ",
                            ToString(targets, ", ", "nothing"), " of ", this->of().description()));
    }
    const SampleOrder order =
        SampleOrder::Shuffled(this->of().size(), static_cast<uint64_t>(options["seed"].as_int()));
    rows_ = BestFit(Pieces(order), length_);
    if (rows_.empty()) throw WorldError(Str("pack: no tokens in ", this->of().description()));
  }
  int64_t size() const override { return std::ssize(rows_); }
  std::string name_of(int64_t index) const override {
    return of().name_of(rows_[static_cast<size_t>(index)].pieces[0].document);
  }
  /// The tokens, and the place of each token in its document.
  TensorSpecs inputs() const override {
    return {{{length_}, DType::kInt64}, {{length_}, DType::kInt64}};
  }
  TensorSpecs targets() const override { return {{{length_}, DType::kInt64}}; }
  DocumentLimits documents() const override {
    int64_t most = 0;
    for (const Row& row : rows_) {
      const int64_t padding = (row.room + longest_piece() - 1) / longest_piece();
      most = std::max(most, std::ssize(row.pieces) + padding);
    }
    return {most, longest_piece()};
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = Step::notes();
    int64_t pieces = 0;
    double padding = 0, squares = 0;  // tokens; pairs of tokens of one document
    for (const Row& row : rows_) {
      pieces += std::ssize(row.pieces);
      padding += static_cast<double>(row.room);
      squares += static_cast<double>(row.room / longest_piece()) * Square(longest_piece()) +
                 Square(row.room % longest_piece());
      for (const Piece& piece : row.pieces) {
        squares += Square(piece.tokens);
      }
    }
    const auto length = static_cast<double>(length_), all = static_cast<double>(size()) * length;
    const auto percent = [](double share) { return FormatDouble(std::round(1000 * share) / 10); };
    notes.push_back(Str("pack: ", Plural(pieces, "document"),
                        split_ > 0 ? " (parts of split ones)" : "", " in ", Plural(size(), "row"),
                        " of ", FormatCount(length_), " tokens, ", percent(padding / all),
                        " % padding; attention takes ", percent(squares / (all * length)),
                        " % of the work on whole rows, which plans assume"));
    if (split_ > 0) {
      notes.push_back(Str("pack: ", Plural(split_, "document"), " longer than a row ",
                          split_ == 1 ? "is" : "are", " split; the longest has ",
                          FormatCount(longest_), " tokens"));
    }
    if (empty_ > 0) {
      notes.push_back(Str("pack: ", Plural(empty_, "document"), " without tokens ",
                          empty_ == 1 ? "is" : "are", " left out"));
    }
    return notes;
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const auto length = static_cast<size_t>(length_);
    std::vector<int64_t> tokens(length), places(length), labels(length, kNoLabel);
    size_t at = 0;
    for (const Piece& piece : rows_[static_cast<size_t>(sample.index)].pieces) {
      const PlainSample document = ReadChecked({piece.document, sample.epoch}, piece);
      CopyNumbers(document.input.bytes, piece.begin, piece.tokens, tokens.data() + at);
      CopyNumbers(document.target.bytes, piece.begin, piece.tokens, labels.data() + at);
      for (int64_t place = 0; place < piece.tokens; ++place) places[at++] = place;
    }
    // The rest of the row is documents of which no target counts. None is longer than the longest
    // piece, for which a model's table of positions may be made.
    for (int64_t place = 0; at < length; ++place) places[at++] = place % longest_piece();
    if (target) std::memcpy(target, labels.data(), length * sizeof(int64_t));
    if (!input) return;
    std::memcpy(input, tokens.data(), length * sizeof(int64_t));
    std::memcpy(input + length * sizeof(int64_t), places.data(), length * sizeof(int64_t));
  }

 private:
  static double Square(int64_t tokens) { return std::pow(static_cast<double>(tokens), 2); }

  int64_t longest_piece() const { return std::min(longest_, length_); }

  /// Reads every document once, for its length.
  std::vector<Piece> Pieces(const SampleOrder& order) {
    std::vector<Piece> pieces;
    DataProgress progress("packing " + of().description(), of().size());
    for (int64_t i = 0; i < order.size(); ++i) {
      progress.At(i);
      const int64_t document = order[i];
      const int64_t tokens = LengthOf(ReadDocument({document, 0}));
      longest_ = std::max(longest_, tokens);
      if (tokens > length_ && !splits_) RefuseLong(document, tokens);
      if (tokens > length_) ++split_;
      if (tokens == 0) ++empty_;
      for (int64_t begin = 0; begin < tokens; begin += length_) {
        pieces.push_back({document, begin, std::min(length_, tokens - begin)});
      }
    }
    return pieces;
  }

  PlainSample ReadDocument(Sample sample) const {
    PlainSample document = of().ReadPlain(sample);
    if (document.target.specs[0].shape == document.input.specs[0].shape) return document;
    throw ConfigError(Str("pack: sample ", sample.index, " of ", of().description(), " has ",
                          LengthOf(document), " tokens and ", document.target.specs[0].shape[0],
                          " targets, expected as many"));
  }

  PlainSample ReadChecked(Sample sample, const Piece& piece) const {
    PlainSample document = ReadDocument(sample);
    const int64_t tokens = LengthOf(document), end = piece.begin + piece.tokens;
    const bool may_go_on = splits_ && piece.tokens == length_;
    if (tokens == end || (may_go_on && tokens > end)) return document;
    throw ConfigError(Str("pack: sample ", sample.index, " of ", of().description(), " has ",
                          tokens, " tokens in epoch ", sample.epoch, " and had ",
                          may_go_on ? "at least " : "", end, " when it was packed; steps before ",
                          "pack must not change lengths at random"));
  }

  [[noreturn]] void RefuseLong(int64_t document, int64_t tokens) const {
    throw ConfigError(Str("pack: sample ", document, " of ", of().description(), " has ",
                          FormatCount(tokens), " tokens, a row has length=", FormatCount(length_),
                          "; long=\"split\" divides it into documents of at most a row"));
  }

  const int64_t length_;
  const bool splits_;
  std::vector<Row> rows_;
  int64_t split_ = 0;    // number of documents that were split
  int64_t empty_ = 0;    // number of documents without tokens, which are in no row
  int64_t longest_ = 0;  // tokens of the longest document
};

}  // namespace

std::unique_ptr<Dataset> OpenPack(const Value& options, StepInputs of, const DatasetContext&) {
  return std::make_unique<Pack>(options, of[0]);
}

}  // namespace strata::data
