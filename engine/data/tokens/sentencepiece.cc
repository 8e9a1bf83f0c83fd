// SentencePiece (Kudo and Richardson, arXiv:1808.06226): unigram, BPE, word and char, with the same
// arithmetic as the SentencePiece library, so that near ties are decided in the same way.
//
// A text is normalised, then cut into pieces. Unigram finds the cut with the largest sum of scores
// by dynamic programming over the bytes (Viterbi), with a trie of all pieces: O(n l) for n bytes
// and pieces of up to l. BPE (Merger) joins the neighbours whose piece has the largest score, with
// a heap: O(n log n). Word and char look each part up. If no piece crosses a word boundary, words
// are cut separately.
//
// The library itself trusts its model: 7 of 1,500 copies of testdata/unigram.model with 40 changed
// bytes ended the process that read them with libsentencepiece 0.1.97.
#include <algorithm>
#include <array>
#include <cfloat>
#include <queue>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/tokens/piece_trie.h"
#include "engine/data/tokens/sentencepiece_model.h"
#include "engine/data/tokens/tokenizer_files.h"

namespace strata::data {
namespace {

using Model = SentencePieceModel;
using Piece = Model::Piece;
using Kind = Model::Kind;
using Method = Model::Method;
using Tokens = std::unordered_map<std::string_view, int32_t>;

constexpr size_t kNowhere = static_cast<size_t>(-1);
// Bytes over which scores are added up in one sum.
constexpr size_t kUnigramPart = 64 << 10;

/// A piece of a text: its token and its length.
struct Cut {
  int32_t token;
  size_t size;  // in bytes
};
using Cuts = std::vector<Cut>;

/// The end of the first word of `text`: before a space that follows something other than spaces.
size_t WordEnd(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with(kSpacePiece)) at += kSpacePiece.size();
  return std::min(text.find(kSpacePiece, at), text.size());
}

Tokens TokensOf(const Model& model) {
  Tokens tokens;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const std::string& text = model.pieces[i].text;
    if (text.empty()) throw ConfigError(Str("the piece ", i, " is empty"));
    if (!tokens.emplace(text, static_cast<int32_t>(i)).second) {
      throw ConfigError(Str("the piece ", i, ", \"", text, "\", is there twice"));
    }
  }
  return tokens;
}

template <class Takes>
PieceTrie TrieOf(const Model& model, Takes takes) {
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    if (takes(piece)) texts.emplace_back(piece.text, static_cast<int32_t>(i));
  }
  return PieceTrie(std::move(texts));
}

/// A model, and indices for finding its pieces.
struct Vocabulary {
  explicit Vocabulary(Model read)
      : model(std::move(read)),
        tokens(TokensOf(model)),
        of_texts(TrieOf(model, [](const Piece& piece) { return piece.is_of_texts(); })),
        kept(TrieOf(model, [](const Piece& piece) { return piece.kind == Kind::kUserDefined; })) {
    const auto found = std::ranges::find(model.pieces, Kind::kUnknown, &Piece::kind);
    if (found == model.pieces.end()) {
      throw ConfigError("expected a SentencePiece model with a piece for what is unknown");
    }
    unknown = static_cast<int32_t>(found - model.pieces.begin());
  }
  const Piece& At(int32_t token) const { return model.pieces[static_cast<size_t>(token)]; }
  int32_t TokenOf(std::string_view text) const {
    const auto token = tokens.find(text);
    return token == tokens.end() ? unknown : token->second;
  }
  /// The length of the first symbol, which BPE and char never cut: a piece of kind user-defined, or
  /// a character.
  size_t FirstSymbol(std::string_view text) const {
    const size_t size = kept.LongestPrefix(text);
    return size > 0 ? size : CharacterLength(text);
  }

  const Model model;
  const Tokens tokens;
  const PieceTrie of_texts;
  const PieceTrie kept;  // user-defined pieces
  int32_t unknown;
};

/// Finds the pieces with the largest sum of scores (Viterbi). Sums are float, added from the first
/// piece on, as in the library since version 0.2: rounding decides near ties.
class Unigram {
 public:
  explicit Unigram(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    for (const Piece& piece : vocabulary.model.pieces) {
      if (piece.kind != Kind::kNormal) continue;
      least_score_ = std::min(least_score_, piece.score);
      largest_score_ = std::max(largest_score_, piece.score);
    }
  }

  Cuts CutsOf(std::string_view text) const {
    constexpr float kUnknownPenalty = 10;
    const float unknown_score = least_score_ - kUnknownPenalty;
    std::vector<Best> best(text.size() + 1);
    for (size_t begin = 0; begin < text.size();) {
      const size_t character = CharacterLength(text.substr(begin));
      if (!OfferPieces(text, begin, character, best)) {
        best[begin + character].Offer(begin, unknown_score + best[begin].score,
                                      vocabulary_.unknown);
      }
      begin += character;
    }
    Cuts cuts;
    for (size_t end = text.size(); end > 0; end = best[end].begin) {
      cuts.push_back({best[end].token, end - best[end].begin});
    }
    std::ranges::reverse(cuts);
    return cuts;
  }

 private:
  // The best way to a position in the text.
  struct Best {
    void Offer(size_t from, float offered, int32_t with) {
      if (begin == kNowhere || offered > score) *this = {with, offered, from};
    }
    int32_t token = -1;
    float score = 0;
    size_t begin = kNowhere;  // the beginning of its last piece
  };

  /// Extends the best way to `begin` by every piece that follows there. Returns true if one of
  /// these pieces is exactly the first character.
  bool OfferPieces(std::string_view text, size_t begin, size_t character,
                   std::vector<Best>& best) const {
    const float so_far = best[begin].score;
    bool has_character = false;
    int32_t node = PieceTrie::kRoot;
    for (size_t end = begin; end < text.size();) {
      node = vocabulary_.of_texts.Child(node, text[end++]);
      if (node == PieceTrie::kNone) break;
      const int32_t token = vocabulary_.of_texts.NumberAt(node);
      if (token == PieceTrie::kNone) continue;
      const Piece& piece = vocabulary_.At(token);
      if (piece.kind == Kind::kUnused) continue;
      const size_t size = end - begin;
      const float score = piece.kind == Kind::kUserDefined
                              ? static_cast<float>(size) * largest_score_ - 0.1F
                              : piece.score;
      best[end].Offer(begin, score + so_far, token);
      has_character |= size == character;
    }
    return has_character;
  }

  const Vocabulary& vocabulary_;
  float least_score_ = FLT_MAX, largest_score_ = FLT_MIN;  // of normal pieces
};

/// BPE: joins the neighbours whose common piece has the largest score, the leftmost among equals,
/// until no two neighbours form a piece. Pieces of kind unused are split again at the end.
class Merger {
 public:
  Merger(const Vocabulary& vocabulary, std::string_view text) : vocabulary_(vocabulary) {
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = text.substr(at);
      const size_t size = vocabulary.FirstSymbol(rest), index = symbols_.size();
      at += size;
      symbols_.push_back({index == 0 ? kNowhere : index - 1,
                          at < text.size() ? index + 1 : kNowhere, rest.substr(0, size),
                          vocabulary.kept.LongestPrefix(rest) > 0});
    }
    for (size_t i = 1; i < symbols_.size(); ++i) Offer(i - 1, i);
  }

  Cuts CutsOf() {
    while (!pairs_.empty()) {
      const Pair best = pairs_.top();
      pairs_.pop();
      const Symbol& left = symbols_[best.left];
      const Symbol& right = symbols_[best.right];
      const bool is_there = !left.text.empty() && !right.text.empty() &&
                            left.text.size() + right.text.size() == best.size;
      if (is_there) Join(best);
    }
    Cuts cuts;
    for (size_t i = 0; i < symbols_.size(); i = symbols_[i].next) Take(symbols_[i].text, cuts);
    return cuts;
  }

 private:
  struct Symbol {
    size_t before, next;
    std::string_view text;  // "" if it was joined with the symbol before
    bool is_kept;
  };
  struct Pair {
    float score;
    size_t left, right, size;
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  void Offer(size_t left, size_t right) {
    if (left == kNowhere || right == kNowhere) return;
    const Symbol &first = symbols_[left], &second = symbols_[right];
    if (first.is_kept || second.is_kept) return;
    const std::string_view both(first.text.data(), first.text.size() + second.text.size());
    const Piece& piece = vocabulary_.At(vocabulary_.TokenOf(both));
    if (!piece.is_of_texts()) return;
    pairs_.push({piece.score, left, right, both.size()});
    if (piece.kind == Kind::kUnused) left_halves_[both] = first.text.size();
  }

  void Join(const Pair& pair) {
    Symbol &left = symbols_[pair.left], &right = symbols_[pair.right];
    left.text = std::string_view(left.text.data(), pair.size);
    right.text = {};
    left.next = right.next;
    if (left.next != kNowhere) symbols_[left.next].before = pair.left;
    Offer(left.before, pair.left);
    Offer(pair.left, left.next);
  }

  void Take(std::string_view text, Cuts& cuts) const {
    const int32_t token = vocabulary_.TokenOf(text);
    const auto half = left_halves_.find(text);
    if (vocabulary_.At(token).kind != Kind::kUnused || half == left_halves_.end()) {
      return cuts.push_back({token, text.size()});
    }
    Take(text.substr(0, half->second), cuts);
    Take(text.substr(half->second), cuts);
  }

  const Vocabulary& vocabulary_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
  // For unused pieces: the length of the left one of the two symbols that were joined.
  std::unordered_map<std::string_view, size_t> left_halves_;
};

/// The byte of a byte piece: "<0x0A>" -> 10.
uint8_t ByteOf(const std::string& piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const bool is_byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  const size_t high = is_byte ? kDigits.find(piece[3]) : kDigits.npos;
  const size_t low = is_byte ? kDigits.find(piece[4]) : kDigits.npos;
  if (high == kDigits.npos || low == kDigits.npos) {
    throw ConfigError(Str("the piece \"", piece, "\" is no byte"));
  }
  return static_cast<uint8_t>(16 * high + low);
}

class SentencePiece : public Tokenizer {
 public:
  explicit SentencePiece(Model model)
      : vocabulary_(std::move(model)),
        unigram_(vocabulary_),
        normaliser_(vocabulary_.model.rules, vocabulary_.kept) {
    bytes_.fill(PieceTrie::kNone);
    const std::vector<Piece>& pieces = vocabulary_.model.pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto token = static_cast<int32_t>(i);
      const auto& [text, score, kind] = pieces[i];
      if (kind == Kind::kByte) bytes_[ByteOf(text)] = token;
      if (kind == Kind::kControl && text == vocabulary_.model.end_of_text) end_ = token;
      const bool crosses = kind == Kind::kUnused || WordEnd(text) < text.size();
      if (pieces[i].is_of_texts() && crosses) words_are_apart_ = false;
    }
    if (vocabulary_.model.has_bytes && std::ranges::count(bytes_, PieceTrie::kNone) > 0) {
      throw ConfigError("the model's byte_fallback wants pieces for all 256 bytes");
    }
  }
  int64_t vocabulary() const override {
    return static_cast<int64_t>(vocabulary_.model.pieces.size());
  }
  int64_t end_of_text() const override { return end_; }
  int32_t SpecialToken(std::string_view text) const override {
    const auto found = vocabulary_.tokens.find(text);
    if (found == vocabulary_.tokens.end()) return -1;
    const Kind kind = vocabulary_.At(found->second).kind;
    return kind == Kind::kControl || kind == Kind::kUserDefined ? found->second : -1;
  }
  bool adds_space() const override {
    const TextNormaliser::Rules& rules = vocabulary_.model.rules;
    return rules.adds_space && !rules.has_spaces_as_suffix;
  }

  void Encode(std::string_view text, TokenList& tokens) const override {
    const std::string normal = normaliser_.Normalise(text);
    bool follows_unknown = false;
    size_t at = 0;
    for (const auto& [token, size] : CutsOf(normal)) {
      const bool is_unknown = token == vocabulary_.unknown;
      if (is_unknown && vocabulary_.model.has_bytes) {
        for (const char c : normal.substr(at, size)) {
          tokens.push_back(bytes_[static_cast<uint8_t>(c)]);
        }
      } else if (!is_unknown || !follows_unknown) {
        // A run of unknown characters becomes one token.
        tokens.push_back(token);
      }
      follows_unknown = is_unknown;
      at += size;
    }
  }

  std::string Decode(int32_t token) const override {
    if (token < 0 || token >= vocabulary()) return "";
    const Piece& piece = vocabulary_.At(token);
    if (piece.kind == Kind::kControl) return "";
    if (piece.kind == Kind::kUnknown) return vocabulary_.model.unknown_text;
    if (piece.kind == Kind::kByte) return {static_cast<char>(ByteOf(piece.text))};
    std::string text = piece.text;
    for (size_t at = 0; (at = text.find(kSpacePiece, at)) != text.npos; ++at) {
      text.replace(at, kSpacePiece.size(), " ");
    }
    return text;
  }

 private:
  /// Cuts a normalised text.
  Cuts CutsOf(std::string_view text) const {
    const Method method = vocabulary_.model.method;
    if (method == Method::kUnigram) return UnigramCutsOf(text);
    if (method == Method::kBpe && !words_are_apart_) return Merger(vocabulary_, text).CutsOf();
    std::unordered_map<std::string_view, Cuts> known;
    Cuts cuts;
    while (!text.empty()) {
      const std::string_view part = text.substr(0, PartEnd(text));
      const auto [entry, is_new] = known.try_emplace(part);
      if (is_new) {
        entry->second = method == Method::kBpe ? Merger(vocabulary_, part).CutsOf()
                                               : Cuts{{vocabulary_.TokenOf(part), part.size()}};
      }
      cuts.insert(cuts.end(), entry->second.begin(), entry->second.end());
      text.remove_prefix(part.size());
    }
    return cuts;
  }

  /// Cuts long texts in parts that end between words: in the sum over a whole file, the float score
  /// of a single piece would be lost to rounding.
  Cuts UnigramCutsOf(std::string_view text) const {
    if (!words_are_apart_) return unigram_.CutsOf(text);
    Cuts cuts;
    while (!text.empty()) {
      size_t end = 0;
      while (end < std::min(kUnigramPart, text.size())) end += WordEnd(text.substr(end));
      const Cuts more = unigram_.CutsOf(text.substr(0, end));
      cuts.insert(cuts.end(), more.begin(), more.end());
      text.remove_prefix(end);
    }
    return cuts;
  }

  /// The end of the first part of `text` that can be cut on its own.
  size_t PartEnd(std::string_view text) const {
    const Method method = vocabulary_.model.method;
    if (method == Method::kBpe) return WordEnd(text);
    if (method == Method::kChar) return vocabulary_.FirstSymbol(text);
    return std::min(text.find(kSpacePiece, 1), text.size());  // a new word begins at every space
  }

  const Vocabulary vocabulary_;
  const Unigram unigram_;
  const TextNormaliser normaliser_;
  std::array<int32_t, 256> bytes_;
  int32_t end_ = -1;
  // True if no piece crosses a word boundary.
  bool words_are_apart_ = true;
};

}  // namespace

std::unique_ptr<Tokenizer> ReadSentencePiece(const MappedFile& file) {
  return std::make_unique<SentencePiece>(ReadSentencePieceModel(file.text()));
}

}  // namespace strata::data
