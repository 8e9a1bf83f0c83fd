// The built-in maps, written as JSON: a rule's positions are "1" and "2", as in a Lua table.
//
// An entry of `config` is the value that config.json gets, or says where the model has it:
//   {"shape": theirs, "dim": d}   the size of a tensor
//   {"count": theirs}             the number of tensors that match a pattern
//   {"argument": "Type.name"}     an argument of the job's first layer of this type
// When published weights are taken, arguments are also compared with the weights' config.json. Two
// further forms serve only this comparison and are never written:
//   {"layers": "Type.name"}       an argument, as above
//   {"only": value}               the value that all models have which the map fits; false = none
// With "if" an entry is compared unless that other entry of config.json is false.
#include "engine/checkpoint/weights/weight_map.h"

namespace strata {
namespace {

// For models/gpt2.lua and transformers' GPT2LMHeadModel, whose Conv1D stores its weights as (in,
// out).
constexpr const char* kGpt2 = R"({
  "1": ["wte.weight", "[transformer.]wte.weight"],
  "2": ["wpe.weight", "[transformer.]wpe.weight"],
  "3": ["h.{i}.attn.ln.{p}", "[transformer.]h.{i}.ln_1.{p}"],
  "4": {"1": "h.{i}.attn.attn.in_proj_weight", "2": "[transformer.]h.{i}.attn.c_attn.weight", "transpose": true},
  "5": ["h.{i}.attn.attn.in_proj_bias", "[transformer.]h.{i}.attn.c_attn.bias"],
  "6": {"1": "h.{i}.attn.attn.out_proj.weight", "2": "[transformer.]h.{i}.attn.c_proj.weight", "transpose": true},
  "7": ["h.{i}.attn.attn.out_proj.bias", "[transformer.]h.{i}.attn.c_proj.bias"],
  "8": ["h.{i}.mlp.ln.{p}", "[transformer.]h.{i}.ln_2.{p}"],
  "9": {"1": "h.{i}.mlp.{fc}.weight", "2": "[transformer.]h.{i}.mlp.{fc}.weight", "transpose": true},
  "10": ["h.{i}.mlp.{fc}.bias", "[transformer.]h.{i}.mlp.{fc}.bias"],
  "11": ["ln_f.{p}", "[transformer.]ln_f.{p}"],
  "12": {"1": "lm_head.weight", "2": "[transformer.]wte.weight", "tied": true},
  "ignore": ["[transformer.]h.{i}.attn.bias", "[transformer.]h.{i}.attn.masked_bias",
             ["lm_head.weight", "[transformer.]wte.weight"]],
  "config": {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
    "vocab_size": {"shape": "transformer.wte.weight", "dim": 0},
    "n_positions": {"shape": "transformer.wpe.weight", "dim": 0},
    "n_embd": {"shape": "transformer.wte.weight", "dim": 1},
    "n_layer": {"count": "transformer.h.{i}.ln_1.weight"},
    "n_head": {"argument": "MultiheadAttention.num_heads"},
    "layer_norm_epsilon": {"argument": "LayerNorm.eps"}
  }
})";

// For a model whose layers have the names of transformers' LlamaForCausalLM, without "model.".
constexpr const char* kLlama = R"({
  "1": ["lm_head.weight", "lm_head.weight"],
  "2": ["{rest*}", "model.{rest*}"],
  "ignore": ["model.layers.{i}.self_attn.rotary_emb.inv_freq"],
  "config": {
    "num_attention_heads": {"layers": "GroupedQueryAttention.num_heads"},
    "num_key_value_heads": {"layers": "GroupedQueryAttention.num_kv_heads"},
    "rope_theta": {"layers": "GroupedQueryAttention.rope_theta"},
    "rope_scaling": {"only": false},
    "sliding_window": {"only": false, "if": "use_sliding_window"},
    "rms_norm_eps": {"layers": "RMSNorm.eps"},
    "hidden_act": {"only": "silu"}
  }
})";

// For encoder blocks that are nn.TransformerEncoderLayer, named "layer.{i}".
constexpr const char* kBert = R"({
  "1": ["embeddings.word", "[bert.]embeddings.word_embeddings.weight"],
  "10": ["embeddings.position", "[bert.]embeddings.position_embeddings.weight"],
  "11": ["embeddings.segment", "[bert.]embeddings.token_type_embeddings.weight"],
  "12": ["embeddings.LayerNorm.{p}", "[bert.]embeddings.LayerNorm.{p}"],
  "2": {"1": "layer.{i}.self_attn.in_proj_{p}", "2": [
    "[bert.]encoder.layer.{i}.attention.self.query.{p}", "[bert.]encoder.layer.{i}.attention.self.key.{p}",
    "[bert.]encoder.layer.{i}.attention.self.value.{p}"]},
  "3": ["layer.{i}.self_attn.out_proj.{p}", "[bert.]encoder.layer.{i}.attention.output.dense.{p}"],
  "4": ["layer.{i}.norm1.{p}", "[bert.]encoder.layer.{i}.attention.output.LayerNorm.{p}"],
  "5": ["layer.{i}.linear1.{p}", "[bert.]encoder.layer.{i}.intermediate.dense.{p}"],
  "6": ["layer.{i}.linear2.{p}", "[bert.]encoder.layer.{i}.output.dense.{p}"],
  "7": ["layer.{i}.norm2.{p}", "[bert.]encoder.layer.{i}.output.LayerNorm.{p}"],
  "8": ["pooler.{p}", "[bert.]pooler.dense.{p}"],
  "9": ["classifier.{p}", "classifier.{p}"],
  "ignore": ["[bert.]embeddings.position_ids", "cls.{rest*}"],
  "config": {
    "num_attention_heads": {"layers": "TransformerEncoderLayer.nhead"},
    "layer_norm_eps": {"layers": "TransformerEncoderLayer.layer_norm_eps"},
    "hidden_act": {"layers": "TransformerEncoderLayer.activation"}
  }
})";

constexpr const char* kVit = R"({
  "1": ["tokens.class", "[vit.]embeddings.cls_token"],
  "2": ["tokens.position", "[vit.]embeddings.position_embeddings"],
  "3": ["patches.{p}", "[vit.]embeddings.patch_embeddings.projection.{p}"],
  "4": {"1": "layer.{i}.self_attn.in_proj_{p}", "2": [
    "[vit.]encoder.layer.{i}.attention.attention.query.{p}", "[vit.]encoder.layer.{i}.attention.attention.key.{p}",
    "[vit.]encoder.layer.{i}.attention.attention.value.{p}"]},
  "5": ["layer.{i}.self_attn.out_proj.{p}", "[vit.]encoder.layer.{i}.attention.output.dense.{p}"],
  "6": ["layer.{i}.norm1.{p}", "[vit.]encoder.layer.{i}.layernorm_before.{p}"],
  "7": ["layer.{i}.norm2.{p}", "[vit.]encoder.layer.{i}.layernorm_after.{p}"],
  "8": ["layer.{i}.linear1.{p}", "[vit.]encoder.layer.{i}.intermediate.dense.{p}"],
  "9": ["layer.{i}.linear2.{p}", "[vit.]encoder.layer.{i}.output.dense.{p}"],
  "10": ["norm.{p}", "[vit.]layernorm.{p}"],
  "11": ["classifier.{p}", "classifier.{p}"],
  "ignore": ["[vit.]pooler.dense.{p}"],
  "config": {
    "num_attention_heads": {"layers": "TransformerEncoderLayer.nhead"},
    "layer_norm_eps": {"layers": "TransformerEncoderLayer.layer_norm_eps"},
    "hidden_act": {"layers": "TransformerEncoderLayer.activation"}
  }
})";

// models/resnet.lua and tests/testdata/weights/convnext.lua use torchvision's names.
constexpr const char* kSameNames = R"({"1": ["{rest*}", "{rest*}"]})";

}  // namespace

const std::vector<std::pair<std::string, Value>>& BuiltInMaps() {
  static const std::vector<std::pair<std::string, Value>> maps = [] {
    std::vector<std::pair<std::string, Value>> all;
    for (const auto& [name, text] :
         {std::pair("gpt2", kGpt2), std::pair("llama", kLlama), std::pair("bert", kBert),
          std::pair("vit", kVit), std::pair("resnet", kSameNames),
          std::pair("convnext", kSameNames)}) {
      all.emplace_back(name, Value::FromJson(text));
    }
    return all;
  }();
  return maps;
}

}  // namespace strata
