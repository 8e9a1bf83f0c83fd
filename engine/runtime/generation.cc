// Begin() groups the prompts into micro-batches and, unless all layers are known to treat tokens
// one by one alike, runs a test text through the model (TokenProbe) to decide whether keys and
// values can be kept. Next() runs the evaluation program once over all groups: inputs are the
// tokens that are not kept yet. The rank with the last stage takes the scores of each text's last
// token and samples a token with a draw that depends on (seed, prompt, position) only. All ranks
// gather the chosen tokens and append them to the texts. A step costs one forward of one token per
// text, or of the whole texts if nothing is kept.
#include "engine/runtime/generation.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/tensors/device_memory.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/language_model.h"
#include "engine/runtime/choose_token.h"
#include "engine/runtime/token_probe.h"

namespace strata {
namespace {

const Doing kTokens = {-1, "GATHER_TOKENS"};
const Doing kTried = {-1, "GATHER_TRIED"};
const DataOrigin kPrompts = {"the prompts", ""};

/// Lengths of the text on which layers are tried. It is as long as the model's input, because a
/// layer may look far back, but at most 1024 tokens.
constexpr int64_t kMostTriedTokens = 1024, kLeastTriedTokens = 3;

/// Feeds the tokens of every micro-batch. Nobody asks for targets.
class TokensFeed : public Feed {
 public:
  TokensFeed(int64_t most, std::vector<at::Tensor> inputs)
      : Feed(kPrompts, most, SpecsOfAll(inputs)), inputs_(std::move(inputs)) {}
  Tensors Input(int m) override { return {inputs_.at(static_cast<size_t>(m))}; }
  Tensors Target(int) override {
    STRATA_CHECK(false) << "texts have no targets";
    return {};
  }

 private:
  static std::vector<TensorSpecs> SpecsOfAll(const std::vector<at::Tensor>& inputs) {
    std::vector<TensorSpecs> specs;
    for (const at::Tensor& input : inputs) specs.push_back({SpecOf(input)});
    return specs;
  }
  const std::vector<at::Tensor> inputs_;
};

/// The largest difference that rounding may cause in a layer's output, as a share of its norm.
double ToleranceOf(const Precision& precision) {
  if (precision.compute == DType::kBFloat16) return 0.03;
  if (precision.compute == DType::kFloat16 || precision.name == "tf32") return 0.004;
  return 2e-5;
}

}  // namespace

TextReport Generation::Begin(const TextRequest& request) {
  texts_.clear();
  groups_.clear();
  request_ = request;
  GroupPrompts();
  TextReport report;
  if (request.keeps_tokens && !std::ranges::all_of(context_.job.layers, IsTokenWise)) {
    report.note = Try();
  }
  if (!request.keeps_tokens || !report.note.empty()) return report;
  const auto own = static_cast<size_t>(context_.pipe_rank);
  report.kept_bytes = TakeMemory(KeptTokenBytes(context_.job, context_.plan).at(own));
  for (Group& group : groups_) {
    if (is_own(group)) group.kept = std::make_unique<KeptTokens>(MostOf(group));
  }
  return report;
}

/// Prompts of equal length share micro-batches of job.eval.batch rows, which go to the replicas in
/// turn.
void Generation::GroupPrompts() {
  const LanguageModel model = LanguageModelOf(context_.job, context_.plan);
  longest_ = model.length;
  const auto rows = static_cast<size_t>(std::max<int64_t>(1, context_.job.eval.batch));
  std::map<size_t, size_t> open;  // the last group of each length
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    const std::vector<int32_t>& prompt = request_.prompts[i];
    const auto length = static_cast<int64_t>(prompt.size());
    if (length < 1 || length >= longest_) {
      throw ConfigError(
          Str("prompt ", i, ": expected 1 to ", longest_ - 1, " tokens, got ", length));
    }
    for (const int32_t token : prompt) {
      if (token >= 0 && token < model.vocabulary) continue;
      throw ConfigError(
          Str("prompt ", i, ": expected tokens from 0 to ", model.vocabulary - 1, ", got ", token));
    }
    texts_.push_back({prompt, std::min(longest_, length + request_.tokens)});
    const auto found = open.find(prompt.size());
    if (found == open.end() || groups_[found->second].prompts.size() == rows) {
      open[prompt.size()] = groups_.size();
      Group& group = groups_.emplace_back();
      group.replica = static_cast<int>(groups_.size() - 1) % context_.replicas;
      group.length = length;
    }
    groups_[open[prompt.size()]].prompts.push_back(static_cast<int64_t>(i));
  }
}

int64_t Generation::MostOf(const Group& group) const {
  return texts_[static_cast<size_t>(group.prompts.front())].most;
}

/// Runs a text through all layers; those that are not known are tried (TokenProbe). Returns why
/// earlier tokens cannot be kept; "" if they can.
std::string Generation::Try() {
  const int64_t count = std::min(kMostTriedTokens, longest_);
  if (count < kLeastTriedTokens) return Str("texts have ", longest_, " tokens at most");
  std::vector<int64_t> tokens;
  const int64_t vocabulary = LanguageModelOf(context_.job, context_.plan).vocabulary;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((7919 * i + 1) % vocabulary);
  TokenProbe probe(context_.job.layers, count, ToleranceOf(context_.job.precision));
  TokensFeed feed(1, {at::tensor(tokens, at::kLong).unsqueeze(0)});
  Outputs outputs;
  outputs.list.resize(static_cast<size_t>(context_.replicas));
  stages_.SwapAverages();
  runner_.Predict(feed, outputs, {.watch = &probe});
  stages_.SwapAverages();
  const AtMeeting meeting(context_.progress, kTried);
  std::string why;
  int first = -1;
  for (const std::string& text : context_.transport.Gather(Str(probe.layer(), " ", probe.why()))) {
    const size_t space = text.find(' ');
    const int layer = std::stoi(text.substr(0, space));
    if (layer < 0 || (first >= 0 && layer >= first)) continue;
    first = layer;
    why = text.substr(space + 1);
  }
  return why;
}

/// Collective. Checks that the keys and values of all texts fit into memory. Returns the bytes of
/// the rank with most.
int64_t Generation::TakeMemory(int64_t bytes_per_token) {
  int64_t tokens = 0;
  for (const Group& group : groups_) {
    if (is_own(group)) tokens += MostOf(group) * static_cast<int64_t>(group.prompts.size());
  }
  const int64_t own = bytes_per_token * tokens;
  const MemoryUse use = MemoryOn(context_.device, context_.memory_account());
  const AtMeeting meeting(context_.progress, kTried);
  int64_t most = 0;
  int rank = 0;
  for (const std::string& text : context_.transport.Gather(Str(own, " ", use.current))) {
    const size_t space = text.find(' ');
    const int64_t kept = std::stoll(text.substr(0, space));
    const int64_t total = kept + std::stoll(text.substr(space));
    const Plan& plan = context_.plan;
    const int64_t limit = plan.MemoryOf(plan.topology.Index(rank, kPipeAxis));
    if (limit > 0 && total > limit) {
      const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
      throw ConfigError(Str("memory: rank ", rank, " would need ", bytes(total),
                            " of tensors, of it ", bytes(kept),
                            " for the keys and values of the texts; the job allows ", bytes(limit),
                            "; fewer prompts at once, fewer tokens or more stages need less"));
    }
    most = std::max(most, kept);
    ++rank;
  }
  return most;
}

std::vector<NewToken> Generation::Next() {
  std::erase_if(groups_, [&](const Group& group) {
    return std::ranges::all_of(group.prompts,
                               [&](int64_t i) { return texts_[static_cast<size_t>(i)].has_ended; });
  });
  std::vector<Group*> own;
  std::vector<int64_t> counts(static_cast<size_t>(context_.replicas));
  for (Group& group : groups_) {
    ++counts[static_cast<size_t>(group.replica)];
    if (is_own(group)) own.push_back(&group);
  }
  if (groups_.empty()) return {};
  PredictionAsked asked;
  for (Group* group : own) {
    if (group->kept) asked.kept.push_back(group->kept.get());
  }
  const Outputs outputs = Run(own, std::ranges::max(counts), asked);
  std::vector<std::string> chosen;
  for (size_t m = 0; m < own.size(); ++m) {
    const Tensors& output = outputs.list[m];
    if (!output.empty()) chosen.push_back(Choose(*own[m], output));
  }
  const AtMeeting meeting(context_.progress, kTokens);
  std::vector<NewToken> tokens;
  for (const std::string& text : context_.transport.Gather(Join(chosen, " "))) {
    if (text.empty()) continue;
    for (const std::string& entry : Split(text, ' ')) {
      const size_t colon = entry.find(':');
      const int64_t prompt = std::stoll(entry.substr(0, colon));
      tokens.push_back(Take(prompt, static_cast<int32_t>(std::stol(entry.substr(colon + 1)))));
    }
  }
  for (Group& group : groups_) ++group.length;
  std::ranges::sort(tokens, {}, &NewToken::prompt);
  return tokens;
}

/// Runs the given micro-batches of this replica; no replica has more than `most`. Returns their
/// outputs, which are empty unless the last stage is on this rank.
Outputs Generation::Run(const std::vector<Group*>& groups, int64_t most,
                        const PredictionAsked& asked) {
  std::vector<at::Tensor> inputs;
  for (const Group* group : groups) inputs.push_back(InputOf(*group));
  TokensFeed feed(most, std::move(inputs));
  Outputs all, own;
  all.list.resize(static_cast<size_t>(most * context_.replicas));
  stages_.SwapAverages();
  runner_.Predict(feed, all, asked);
  stages_.SwapAverages();
  const auto first = static_cast<size_t>(most * context_.replica);
  for (size_t m = 0; m < groups.size(); ++m) {
    own.list.push_back(std::move(all.list[first + m]));
    Group& group = *groups[m];
    if (!group.kept) continue;
    group.kept->Advance(group.length - group.done);
    group.done = group.length;
  }
  return own;
}

/// The tokens of the group that are not kept yet. A text that has ended repeats its last token.
at::Tensor Generation::InputOf(const Group& group) const {
  std::vector<int64_t> tokens;
  for (const int64_t prompt : group.prompts) {
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(prompt)].tokens;
    for (int64_t place = group.done; place < group.length; ++place) {
      tokens.push_back(text[std::min(static_cast<size_t>(place), text.size() - 1)]);
    }
  }
  return at::tensor(tokens, at::kLong).view({static_cast<int64_t>(group.prompts.size()), -1});
}

/// Returns "prompt:token" for each text of the group that has not ended.
std::string Generation::Choose(const Group& group, const Tensors& outputs) const {
  at::Tensor scores = outputs.at(0).select(1, -1).to(at::kCPU, at::kFloat).contiguous();
  if (GivesProbabilities(context_.job.layers, outputs[0].dim())) scores = scores.log();
  const auto count = static_cast<size_t>(scores.size(1));
  std::vector<std::string> chosen;
  for (size_t row = 0; row < group.prompts.size(); ++row) {
    const int64_t prompt = group.prompts[row];
    if (texts_[static_cast<size_t>(prompt)].has_ended) continue;
    const double draw = DrawOf(request_.seed, prompt, group.length);
    const std::span own(scores.const_data_ptr<float>() + row * count, count);
    chosen.push_back(Str(prompt, ":", ChooseToken(own, request_, draw)));
  }
  return Join(chosen, " ");
}

NewToken Generation::Take(int64_t prompt, int32_t token) {
  Text& text = texts_[static_cast<size_t>(prompt)];
  text.tokens.push_back(token);
  const bool is_full = static_cast<int64_t>(text.tokens.size()) >= text.most;
  text.has_ended = token == request_.end || is_full;
  return {prompt, token, text.has_ended};
}

}  // namespace strata
