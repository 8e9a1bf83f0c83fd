"""Writes tiny random models as transformers and torchvision save them, and what these compute with them:
logits of an input, and the losses of five steps of SGD; of GPT-2 what it goes on with. weights.py holds Strata to it.

    pip install transformers==4.57.3 torchvision==0.26.0 safetensors==0.8.0
    PYTHONPATH=$(tools/pytorch) python3 make_weights.py
"""

import copy
import json
import pathlib
import shutil

import torch
import torchvision
import transformers
from safetensors.torch import save_file

folder = pathlib.Path(__file__).parent
STEPS = 5


def record(name, model, x, y, lr, flags, map, source):
    """Logits in evaluation, then five steps in training, all of one batch."""
    def logits():
        out = model(x)
        return getattr(out, "logits", out)

    model.eval()
    with torch.no_grad():
        expected = logits()
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(STEPS):
        out = logits()
        loss = torch.nn.functional.cross_entropy(out.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(folder / (name + ".json"), "w") as file:
        json.dump({"map": map, "source": source, "flags": flags, "lr": lr, "x": x.flatten().tolist(),
                   "x_shape": list(x.shape), "y": y.flatten().tolist(), "y_shape": list(y.shape),
                   "logits": [round(v, 7) for v in expected.flatten().tolist()], "losses": losses}, file)
        file.write("\n")


def record_greedy(name, model, prompts, length):
    """What the model goes on with, always the likeliest token."""
    model.eval()
    texts = [model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_length=length,
                            do_sample=False, eos_token_id=None, pad_token_id=0)[0].tolist() for prompt in prompts]
    file = folder / (name + ".json")
    golden = json.loads(file.read_text())
    golden["greedy"] = [{"prompt": prompt, "text": text} for prompt, text in zip(prompts, texts)]
    file.write_text(json.dumps(golden) + "\n")


def tokens(rows, length, vocabulary):
    return torch.randint(vocabulary, (rows, length))


def images(rows, size):
    return torch.randint(-8, 9, (rows, 3, size, size)) / 4


def restart(name, seed):
    torch.manual_seed(seed)
    shutil.rmtree(folder / name, ignore_errors=True)
    return folder / name


class TinyResNet(torchvision.models.ResNet):
    """With a 32nd of the channels behind the first convolution."""

    def _make_layer(self, block, planes, *arguments, **options):
        return super()._make_layer(block, planes // 32, *arguments, **options)


# The models; weights.py makes them again.

def gpt2_model():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=37, n_positions=8, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        initializer_range=0.3))


def llama_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8, rms_norm_eps=1e-5, rope_theta=10000,
        tie_word_embeddings=False, initializer_range=0.3))


def bert_model():
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=29, max_position_embeddings=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3,
        initializer_range=0.3))


def vit_model():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=8,
        patch_size=4, num_labels=5, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
        initializer_range=0.3))


def resnet_model():
    model = TinyResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
    model.fc = torch.nn.Linear(16, 5)
    model.train()
    with torch.no_grad():  # running statistics that are not their initial values
        model(images(8, 32))
    return model


def convnext_model():
    setting = torchvision.models.convnext.CNBlockConfig
    return torchvision.models.ConvNeXt(
        [setting(4, 8, 1), setting(8, 16, 1), setting(16, 32, 1), setting(32, None, 1)],
        layer_scale=0.5, num_classes=5)


# What is recorded

def gpt2():
    place = restart("gpt2", 1)
    model = gpt2_model()
    model.bfloat16().save_pretrained(place, max_shard_size="8KB")
    (place / "generation_config.json").unlink(missing_ok=True)
    model.float()
    flags = ["--vocab=37", "--seq=8", "--dim=16", "--depth=2", "--heads=4", "--dropout=0"]
    trained = copy.deepcopy(model.state_dict())
    record("gpt2", model, tokens(4, 6, 37), tokens(4, 6, 37), 0.1, flags, "gpt2", "gpt2")
    model.load_state_dict(trained)  # without the five steps
    record_greedy("gpt2", model, [[25], [11, 35], [9, 33, 27], [20]], 8)


def bert():
    place = restart("bert", 2)
    model = bert_model()
    model.save_pretrained(place)
    flags = ["--vocab=29", "--seq=8", "--dim=16", "--depth=2", "--heads=4", "--hidden=32", "--classes=3",
             "--dropout=0", "--rows=4"]
    record("bert", model, tokens(4, 7, 29), tokens(4, 1, 3)[:, 0], 0.05, flags, "bert", "bert")


def vit():
    place = restart("vit", 3)
    place.mkdir()
    model = vit_model()
    torch.save(model.state_dict(), place / "pytorch_model.bin")
    flags = ["--pixels=8", "--patch=4", "--dim=16", "--depth=2", "--heads=4", "--hidden=32", "--classes=5"]
    record("vit", model, images(4, 8), tokens(4, 1, 5)[:, 0], 0.05, flags, "vit", "vit")


def resnet():
    torch.manual_seed(4)
    model = resnet_model()
    torch.save(model.state_dict(), folder / "resnet.pth")
    flags = ["--depth=10", "--classes=5", "--width=2", "--inplanes=64", "--pixels=32"]
    record("resnet", model, images(4, 32), tokens(4, 1, 5)[:, 0], 0.01, flags, "resnet", "resnet.pth")


def convnext():
    torch.manual_seed(5)
    model = convnext_model()
    save_file(model.state_dict(), folder / "convnext.safetensors")
    flags = ["--width=4", "--depths=1,1,1,1", "--classes=5", "--pixels=32"]
    record("convnext", model, images(2, 32), tokens(2, 1, 5)[:, 0], 0.05, flags, "convnext", "convnext.safetensors")


def llama():
    place = restart("llama", 6)
    model = llama_model()
    model.bfloat16().save_pretrained(place, max_shard_size="8KB")
    (place / "generation_config.json").unlink(missing_ok=True)
    model = transformers.LlamaForCausalLM.from_pretrained(place)  # bfloat16() rounds the rotary frequencies too
    flags = ["--seq=8", "--dim=16", "--depth=2", "--heads=4", "--kv_heads=2", "--hidden=32"]
    record("llama", model, tokens(4, 6, 256), tokens(4, 6, 256), 0.1, flags, "llama", "llama")


if __name__ == "__main__":
    for make in (gpt2, bert, vit, resnet, convnext, llama):
        make()
