"""The pages of docs/reference/ from what `strata help --json` tells; tables.py compares and writes them."""

import json

_MARK = """Written from the program's tables by `tests/documents/tables.py`; `//tests/documents:reference_test` says when it is
stale."""
# What a layer is made with beside its required fields, where those alone would be no layer.
_EXAMPLES = {
    "nn.Sequential": "nn.Sequential{nn.Linear{4, 4}, nn.ReLU{}}",
    "nn.Residual": "nn.Residual{nn.Linear{4, 4}}",
    "nn.TransformerEncoder": "nn.TransformerEncoder{nn.TransformerEncoderLayer{8, 2}, num_layers=2}",
    "nn.TransformerDecoder": "nn.TransformerDecoder{nn.TransformerDecoderLayer{8, 2}, num_layers=2}",
    "nn.Upsample": "nn.Upsample{scale_factor=2}",
    "strata.skip": "strata.skip{\"key\"}",
    "strata.join": "strata.join{\"key\"}",
}
_BY_KIND = {"boolean": "true", "integer": "8", "sizes": "3", "number": "0.5", "string": "\"float32\"", "numbers": "{0.5, 0.5}",
            "function": "function(x) return x end", "table": "{}", "any": "1"}
_BY_NAME = {"num_heads": "2", "nhead": "2", "heads": "2", "num_groups": "2", "upscale_factor": "2",
            "downscale_factor": "2", "unflattened_size": "{2, 4}", "normalized_shape": "8", "output_size": "4"}


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def fields_table(fields):
    if not fields:
        return "No options.\n"
    rows = ["| `%s` | %s | `%s` | %s |" % (cell(f["name"]), cell(f["takes"]), cell(f["default"]), cell(f["help"]))
            for f in fields]
    return "| name | takes | default | what it says |\n|---|---|---|---|\n%s\n" % "\n".join(rows)


def example(layer):
    """A call that makes the layer."""
    if layer["name"] in _EXAMPLES:
        return _EXAMPLES[layer["name"]]
    values = []
    for field in layer["fields"]:
        if not field["required"]:
            continue
        by_kind = json.dumps(field["choices"][0]) if field["kind"] == "choice" else _BY_KIND[field["kind"]]
        values.append(_BY_NAME.get(field["name"], by_kind))
    return "%s{%s}" % (layer["name"], ", ".join(values))


def page(title, text):
    return "# %s\n\n%s\n\n%s" % (title, _MARK, text.rstrip("\n") + "\n")


def commands_page(told):
    parts = []
    for command in told["commands"]:
        parts.append("## %s\n```\nstrata %s %s\n```\n%s\n\n%s%s" % (
            command["name"], command["name"], command["usage"], command["details"],
            fields_table(command["flags"]) if command["flags"] else "",
            "\nEvery [key of the job](../keys.md) is a flag, too.\n" if command["takes_job"] else ""))
    codes = "\n".join("| %s | %s |" % (row["code"], row["means"]) for row in told["exit_codes"])
    parts.append("## Exit codes\n| code | means |\n|---|---|\n%s\n" % codes)
    return page("Commands", "\n".join(parts))


def tables_page(told):
    parts = ["[Keys](../keys.md) has the keys themselves; those below take tables, as `--batch.micro_batches=8` or\n"
             "`batch = {micro_batches=8}`.\n"]
    for key in told["keys"]:
        tables = [table for table in key["tables"] if not table["name"] and table["fields"]]
        for table in tables:
            parts.append("## %s\n%s\n\n%s" % (key["name"], key["help"], fields_table(table["fields"])))
    return page("Tables of keys", "\n".join(parts))


def layers_page(told, losses):
    parts = []
    for layer in told["layers"]:
        if layer["loss"] == losses:
            shapes = "\n\nShapes: `%s`" % layer["shapes"] if layer["shapes"] else ""
            parts.append("## %s\n%s%s\n```lua\n%s\n```\n%s" % (
                layer["name"], layer["help"], shapes, example(layer), fields_table(layer["fields"])))
    return page("Losses" if losses else "Layers", "\n".join(parts))


def training_page(told, drawings):
    parts = []
    for title, name in (("Optimizers", "optimizer"), ("Schedules of the learning rate", "lr_schedule"),
                        ("Adapters", "adapt"), ("Precisions", "precision")):
        key = next(key for key in told["keys"] if key["name"] == name)
        parts.append("## %s\n`%s`: %s\n" % (title, name, key["help"]))
        for table in key["tables"]:
            parts.append("### %s\n```lua\n%s = {\"%s\"}\n```\n%s" % (
                table["name"], name, table["name"], fields_table(table["fields"])))
    metrics = "\n".join("| `%s` | %s |" % (metric["name"], "more" if metric["more_is_better"] else "less")
                        for metric in told["metrics"])
    parts.append("## Metrics\n| of `eval.metrics` | better is |\n|---|---|\n%s\n" % metrics)
    parts.append("## Cuts\n`partition` takes %s, a list of cuts, or a function(layers, stages).\n" % ", ".join(
        "`\"%s\"`" % name for name in told["partitions"]))
    parts.append("## Schedules of the pipeline\nOf 3 ranks and 4 micro-batches, drawn by `strata.schedule(NAME, "
                 "{...}):gantt()`.\n")
    for name in told["schedules"]:
        parts.append("### %s\n%s" % (name, "```\n%s\n```\n" % drawings[name] if name in drawings else
                                     "Searched for the job: no two are alike.\n"))
    return page("Training", "\n".join(parts))


def data_page(told):
    parts = []
    for title, kind in (("Sources", "sources"), ("Steps", "steps")):
        parts.append("## %s" % title)
        for made in told[kind]:
            parts.append("### %s\n%s\n\n%s" % (made["name"], made["help"], fields_table(made["fields"])))
    return page("Data", "\n".join(parts))


def function_text(function, level):
    name, _, first = function["help"].partition(": ")
    head = first.split("\n")[0]
    rest = "\n".join(first.split("\nname ")[0].split("\n")[1:]).strip("\n")  # a table of fields follows
    text = "%s %s\n%s\n" % ("#" * level, function["name"], "```lua\n%s\n```\n%s" % (name, head))
    if rest:
        text += "\n```\n%s\n```\n" % rest
    return text + ("\n" + fields_table(function["fields"]) if function["fields"] and len(function["fields"]) < 25 else "")


def library_page(told):
    parts = ["Tensors have torch.Tensor's methods, `strata.F` torch.nn.functional's functions and every public operator\n"
             "of ATen: [Scripts](../scripts.md#tensors).\n\n## Functions\n"]
    parts += [function_text(function, 3) for function in told["functions"]
              if not function["name"].startswith("strata.data.") and function["name"] != "strata.dataset"]
    for kind in told["types"]:
        parts.append("## %s\n%s\n" % (kind["name"][0].upper() + kind["name"][1:], kind["help"]))
        parts += [function_text(member, 3) for member in kind["methods"] + kind["properties"]]
    return page("Library", "\n".join(parts))


def count(told):
    """How many entries all pages have."""
    tables = sum(len(key["tables"]) for key in told["keys"])
    members = sum(len(kind["methods"]) + len(kind["properties"]) for kind in told["types"])
    return (sum(len(told[kind]) for kind in ("commands", "keys", "layers", "sources", "steps", "functions", "metrics",
                                             "schedules", "partitions")) + tables + members + len(told["exit_codes"]))


def index_page(told):
    return page("Reference", """%d entries: all that the program's own tables know.

| page | has |
|---|---|
| [Keys](../keys.md) | every key of a job, with an example |
| [Tables of keys](tables.md) | what the keys take that are tables |
| [Commands](commands.md) | every command with its flags; exit codes |
| [Layers](layers.md), [losses](losses.md) | arguments, defaults, shapes |
| [Training](training.md) | optimizers, schedules, metrics, cuts |
| [Data](data.md) | sources and steps |
| [Library](library.md) | functions of `strata`, methods and properties of its objects |
| [The contract](contract.md) | written by hand: formats, action texts, environment, limits, tolerances, promises about bits |
| [Faults that are tested](faults.md) | written by hand: what each shows, its exit code, what is left, its test |
""" % count(told))


def pages(told, drawings):
    """{name of the file: text}"""
    return {"README.md": index_page(told), "commands.md": commands_page(told), "tables.md": tables_page(told),
            "layers.md": layers_page(told, False), "losses.md": layers_page(told, True),
            "training.md": training_page(told, drawings), "data.md": data_page(told),
            "library.md": library_page(told)}
