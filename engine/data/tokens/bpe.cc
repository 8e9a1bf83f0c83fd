// Byte-level BPE from a Hugging Face tokenizer.json, as GPT-2 and its descendants use it.
//
// Encode() cuts the text at special tokens, normalises the rest (NFC) if the file says so, and
// splits it into words. A word starts as one token per byte; MergeAll() then repeatedly joins the
// pair of neighbours with the lowest rank (learned first). Words are cached within a call, so a
// word is merged once. The second half of the file reads the tokenizer.json, and refuses everything
// that this implementation does not do.
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/data/tokens/nfc.h"
#include "engine/data/tokens/tokenizer_files.h"
#include "engine/data/tokens/utf8.h"
#include "engine/data/tokens/word_splitter.h"

namespace strata::data {
namespace {

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  throw WorldError(Str(path, ": ", what));
}

/// The alphabet in which a tokenizer.json writes bytes: printable ones as themselves, the others as
/// U+0100 and following (GPT-2's bytes_to_unicode).
std::map<std::string, char> ByteAlphabet() {
  std::map<std::string, char> alphabet;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = is_itself ? byte : next++;
    std::string letter;
    AppendUtf8(static_cast<char32_t>(code), letter);
    alphabet[letter] = static_cast<char>(byte);
  }
  return alphabet;
}

/// The bytes of a token as the file writes it; none if it has a letter outside the alphabet, as
/// special tokens may.
std::optional<std::string> BytesOf(std::string_view token) {
  static const std::map<std::string, char> alphabet = ByteAlphabet();
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const size_t length = static_cast<uint8_t>(token[at]) < 0x80 ? 1 : 2;
    const auto found = alphabet.find(std::string(token.substr(at, length)));
    if (found == alphabet.end()) return std::nullopt;
    bytes += found->second;
    at += length;
  }
  return bytes;
}

struct Merge {
  int rank;
  int32_t token;
};

struct Special {
  std::string text;
  int32_t token;
  bool is_control;  // the file's "special": not a part of texts, but inserted by programs
};

enum class Controls { kAreFound, kAreCharacters };

/// Special tokens, which stand for a text wherever it occurs.
struct Specials {
  std::vector<Special> list;  // the longest text first
  std::string begins;         // the first byte of each text

  struct Found {
    size_t at;
    const Special* special;
  };
  /// The first special token in the text; the longest if several begin there; null if there is
  /// none.
  Found NextIn(std::string_view text, Controls controls) const {
    for (size_t at = 0; (at = text.find_first_of(begins, at)) != text.npos; ++at) {
      for (const Special& special : list) {
        if (special.is_control && controls == Controls::kAreCharacters) continue;
        if (text.substr(at).starts_with(special.text)) return {at, &special};
      }
    }
    return {text.size(), nullptr};
  }

  /// Adds the tokens of a text, and calls plain(text) for the parts between special tokens.
  template <class Plain>
  void Encode(std::string_view text, Controls controls, TokenList& tokens,
              const Plain& plain) const {
    while (!text.empty()) {
      const auto [at, special] = NextIn(text, controls);
      if (at > 0) plain(text.substr(0, at));
      text.remove_prefix(at);
      if (!special) continue;
      tokens.push_back(special->token);
      text.remove_prefix(special->text.size());
    }
  }
};

struct Model {
  std::unordered_map<std::string, int32_t> vocabulary;  // by the bytes of the token
  std::unordered_map<uint64_t, Merge> merges;           // by PairOf() both tokens
  std::array<int32_t, 256> bytes{};
  // Special tokens that are looked for in the original text, and in the normalised one.
  Specials raw, normal;
  bool composes = false;  // true if the text is normalised to NFC
  int64_t size = 0;
  int64_t end_of_text = -1;
  TokenList before_text;
  // True if a word that is a token as a whole is not split and merged.
  bool ignores_merges = false;
  bool adds_space = false;
  WordSplitter splitter = WordSplitter::Gpt2();
};

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

class Bpe : public Tokenizer {
 public:
  explicit Bpe(Model model) : model_(std::move(model)) {
    for (const auto& [bytes, token] : model_.vocabulary) texts_[token] = bytes;
    for (const Specials* specials : {&model_.raw, &model_.normal}) {
      for (const Special& special : specials->list) texts_[special.token] = special.text;
    }
  }
  int64_t vocabulary() const override { return model_.size; }
  int64_t end_of_text() const override { return model_.end_of_text; }
  TokenList before_text() const override { return model_.before_text; }

  void Encode(std::string_view text, TokenList& tokens) const override {
    EncodeWith(Controls::kAreFound, text, tokens);
  }
  void EncodeContent(std::string_view text, TokenList& tokens) const override {
    EncodeWith(Controls::kAreCharacters, text, tokens);
  }
  int32_t SpecialToken(std::string_view text) const override {
    for (const Specials* specials : {&model_.raw, &model_.normal}) {
      const auto found = std::ranges::find(specials->list, text, &Special::text);
      if (found != specials->list.end()) return found->token;
    }
    return -1;
  }

  std::string Decode(int32_t token) const override {
    const auto found = texts_.find(token);
    return found == texts_.end() ? "" : found->second;
  }

 private:
  /// The tokens of words that were merged before in this call.
  using Known = std::unordered_map<std::string_view, TokenList>;

  void EncodeWith(Controls controls, std::string_view text, TokenList& tokens) const {
    Known known;
    std::deque<std::string> normalised;  // `known` refers to these texts
    model_.raw.Encode(text, controls, tokens, [&](std::string_view part) {
      if (model_.composes && !IsPlainNfc(part)) part = normalised.emplace_back(ToNfc(part));
      model_.normal.Encode(part, controls, tokens,
                           [&](std::string_view plain) { EncodePlain(plain, known, tokens); });
    });
  }

  void EncodePlain(std::string_view text, Known& known, TokenList& tokens) const {
    if (model_.adds_space && text[0] != ' ') {
      // A cache of its own, since it refers to `spaced`, which ends here.
      Known own;
      const std::string spaced = Str(" ", text);
      return EncodeWords(spaced, own, tokens);
    }
    EncodeWords(text, known, tokens);
  }

  void EncodeWords(std::string_view text, Known& known, TokenList& tokens) const {
    std::vector<std::string_view> words;
    model_.splitter.Split(text, words);
    for (const std::string_view word : words) {
      const auto [entry, is_new] = known.try_emplace(word);
      if (is_new) entry->second = MergeWord(word);
      tokens.insert(tokens.end(), entry->second.begin(), entry->second.end());
    }
  }

  TokenList MergeWord(std::string_view word) const {
    if (model_.ignores_merges) {
      const auto found = model_.vocabulary.find(std::string(word));
      if (found != model_.vocabulary.end()) return {found->second};
    }
    TokenList tokens;
    for (const char c : word) tokens.push_back(model_.bytes[static_cast<uint8_t>(c)]);
    return MergeAll(std::move(tokens));
  }

  /// Joins the pair of neighbours with the lowest rank, the leftmost among equals, until no pair
  /// can be joined. A heap of pairs over a linked list of tokens makes this O(n log n) for n bytes.
  TokenList MergeAll(TokenList tokens) const {
    const auto size = static_cast<int>(tokens.size());
    std::vector<int> next(tokens.size()), before(tokens.size());
    for (int i = 0; i < size; ++i) {
      next[static_cast<size_t>(i)] = i + 1;
      before[static_cast<size_t>(i)] = i - 1;
    }
    struct Candidate {
      int rank, at;
      uint64_t pair;
      int32_t token;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : at > other.at;
      }
    };
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
    const auto offer = [&](int at) {
      const int right = at < 0 ? size : next[static_cast<size_t>(at)];
      if (right >= size) return;
      const uint64_t pair =
          PairOf(tokens[static_cast<size_t>(at)], tokens[static_cast<size_t>(right)]);
      const auto found = model_.merges.find(pair);
      if (found == model_.merges.end()) return;
      candidates.push({found->second.rank, at, pair, found->second.token});
    };
    for (int i = 0; i + 1 < size; ++i) offer(i);
    for (; !candidates.empty();) {
      const Candidate best = candidates.top();
      candidates.pop();
      const auto at = static_cast<size_t>(best.at);
      if (tokens[at] < 0 || next[at] >= size) continue;
      const auto right = static_cast<size_t>(next[at]);
      // One of both was merged meanwhile.
      if (PairOf(tokens[at], tokens[right]) != best.pair) continue;
      tokens[at] = best.token;
      tokens[right] = -1;
      next[at] = next[right];
      if (next[at] < size) before[static_cast<size_t>(next[at])] = best.at;
      offer(before[at]);
      offer(best.at);
    }
    std::erase(tokens, -1);
    return tokens;
  }

  const Model model_;
  std::unordered_map<int32_t, std::string> texts_;  // the bytes of each token
};

// ---- Reading the file

bool IsOn(const Value& object, const char* name) {
  return object[name].is_bool() && object[name].as_bool();
}

std::string TypeOf(const Value& object) {
  return object.is_map() && object["type"].is_string() ? object["type"].as_string() : "none";
}

int32_t TokenOf(const Value& id, const std::string& text, const std::string& path) {
  // Minus 1, so that the number of tokens fits as well.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 1;
  if (!id.is_int() || id.as_int() < 0 || id.as_int() > kMost) {
    Refuse(path, Str("the token \"", text, "\" has the number ", id.Describe()));
  }
  return static_cast<int32_t>(id.as_int());
}

void ReadVocabulary(const Value& vocabulary, const std::string& path, Model& model) {
  for (const auto& [text, id] : vocabulary.as_map()) {
    const int32_t token = TokenOf(id, text, path);
    model.size = std::max<int64_t>(model.size, token + 1);
    if (const auto bytes = BytesOf(text)) model.vocabulary[*bytes] = token;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = model.vocabulary.find(std::string(1, static_cast<char>(byte)));
    if (found == model.vocabulary.end()) Refuse(path, Str("the byte ", byte, " has no token"));
    model.bytes[static_cast<size_t>(byte)] = found->second;
  }
}

/// The two tokens of a merge: "a b", or {"a", "b"} in newer files.
std::pair<std::string, std::string> MergeOf(const Value& merge, const std::string& path) {
  if (merge.is_list() && merge.as_list().size() == 2) {
    return {merge.as_list()[0].as_string(), merge.as_list()[1].as_string()};
  }
  const std::vector<std::string> both =
      merge.is_string() ? Split(merge.as_string(), ' ') : std::vector<std::string>();
  if (both.size() != 2) Refuse(path, Str("a merge has two tokens, got ", merge.Describe()));
  return {both[0], both[1]};
}

void ReadMerges(const Value& merges, const std::string& path, Model& model) {
  int rank = 0;
  for (const Value& merge : merges.as_list()) {
    const auto [left, right] = MergeOf(merge, path);
    const auto token_of = [&](const std::string& text) {
      const auto bytes = BytesOf(text);
      const auto found = bytes ? model.vocabulary.find(*bytes) : model.vocabulary.end();
      if (found == model.vocabulary.end()) {
        Refuse(path, Str("merge ", rank, " has \"", text, "\", which is no token"));
      }
      return found->second;
    };
    model.merges.emplace(PairOf(token_of(left), token_of(right)),
                         Merge{rank, token_of(left + right)});
    ++rank;
  }
}

void ReadSpecials(const Value& added, const std::string& path, Model& model) {
  if (!added.is_list()) return;
  for (const Value& token : added.as_list()) {
    const std::string& text = token["content"].as_string();
    for (const char* name : {"lstrip", "rstrip", "single_word"}) {
      if (IsOn(token, name))
        Refuse(path, Str("the token \"", text, "\" has ", name, ", which is not done"));
    }
    const int32_t id = TokenOf(token["id"], text, path);
    model.size = std::max<int64_t>(model.size, id + 1);
    if (text.empty()) Refuse(path, "an added token is empty");
    Specials& specials = IsOn(token, "normalized") ? model.normal : model.raw;
    specials.list.push_back({model.composes && &specials == &model.normal ? ToNfc(text) : text, id,
                             IsOn(token, "special")});
    specials.begins += specials.list.back().text[0];
    for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
      if (text == name) model.end_of_text = id;
    }
  }
  for (Specials* specials : {&model.raw, &model.normal}) {
    std::ranges::stable_sort(specials->list, std::greater(),
                             [](const Special& special) { return special.text.size(); });
  }
}

void ReadByteLevel(const Value& step, const std::string& path, bool splits, Model& model) {
  const bool uses_regex = step["use_regex"].is_null() || IsOn(step, "use_regex");
  if (uses_regex == splits) {
    Refuse(path,
           "a pre_tokenizer ByteLevel with use_regex beside a Split, or without both, is not done");
  }
  model.adds_space = IsOn(step, "add_prefix_space");
  if (model.adds_space && splits) {
    Refuse(path,
           "a pre_tokenizer ByteLevel with add_prefix_space behind a Split, which puts a space "
           "before each of its pieces, is not done");
  }
}

/// Reads the pre-tokenizer: ByteLevel alone, or a Split by a known regular expression before it.
void ReadPreTokenizer(const Value& pre, const std::string& path, Model& model) {
  if (TypeOf(pre) == "ByteLevel") return ReadByteLevel(pre, path, false, model);
  const Value& steps = pre.is_map() ? pre["pretokenizers"] : pre;
  const bool is_pair = TypeOf(pre) == "Sequence" && steps.is_list() && steps.as_list().size() == 2;
  if (!is_pair || TypeOf(steps.as_list()[0]) != "Split" ||
      TypeOf(steps.as_list()[1]) != "ByteLevel") {
    Refuse(path, Str("the pre_tokenizer ", TypeOf(pre), " is not done; ByteLevel is, and a Split ",
                     "before it"));
  }
  const Value& split = steps.as_list()[0];
  const Value& regex = split["pattern"]["Regex"];
  const auto splitter = regex.is_string() ? WordSplitter::OfRegex(regex.as_string()) : std::nullopt;
  if (!splitter || split["behavior"] != Value("Isolated") || IsOn(split, "invert")) {
    Refuse(path, Str("the pre_tokenizer splits by ", regex.Describe(), ", which is not done"));
  }
  model.splitter = *splitter;
  ReadByteLevel(steps.as_list()[1], path, true, model);
}

/// Reads the tokens that a template puts before a single text; other post-processors are ignored.
void ReadPostProcessor(const Value& processor, const std::string& path, Model& model) {
  const std::string type = TypeOf(processor);
  if (type == "Sequence") {
    for (const Value& step : processor["processors"].as_list()) {
      ReadPostProcessor(step, path, model);
    }
  }
  if (type != "TemplateProcessing") return;
  for (const Value& piece : processor["single"].as_list()) {
    if (piece.Has("Sequence")) return;
    const std::string& name = piece["SpecialToken"]["id"].as_string();
    for (const Value& id : processor["special_tokens"][name]["ids"].as_list()) {
      model.before_text.push_back(TokenOf(id, name, path));
      model.size = std::max<int64_t>(model.size, model.before_text.back() + 1);
    }
  }
}

Model ReadModel(const Value& file, const std::string& path) {
  const Value& bpe = file["model"];
  if (!bpe.is_map() || !bpe["vocab"].is_map() || !bpe["merges"].is_list()) {
    Refuse(path, "expected a tokenizer.json with the model BPE");
  }
  const std::string normaliser = TypeOf(file["normalizer"]);
  if (!file["normalizer"].is_null() && normaliser != "NFC") {
    Refuse(path, Str("the normalizer ", normaliser, " is not done; NFC is"));
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (bpe[name].is_string() && !bpe[name].as_string().empty()) {
      Refuse(path, Str("the model's ", name, " is not done"));
    }
  }
  if (IsOn(bpe, "byte_fallback")) Refuse(path, "the model's byte_fallback is not done");
  if (bpe["dropout"].is_number()) Refuse(path, "the model's dropout is not done");
  Model model;
  model.composes = normaliser == "NFC";
  model.ignores_merges = IsOn(bpe, "ignore_merges");
  ReadVocabulary(bpe["vocab"], path, model);
  ReadMerges(bpe["merges"], path, model);
  ReadSpecials(file["added_tokens"], path, model);
  ReadPreTokenizer(file["pre_tokenizer"], path, model);
  ReadPostProcessor(file["post_processor"], path, model);
  return model;
}

}  // namespace

std::unique_ptr<Tokenizer> ReadByteLevelBpe(const MappedFile& file) {
  constexpr size_t kMostLevels = 20;
  const std::string& path = file.path();
  return std::make_unique<Bpe>(ReadModel(ParseStrictJson(file.text(), kMostLevels, path), path));
}

}  // namespace strata::data
