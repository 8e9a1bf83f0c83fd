#!/ usr / bin / env python3
"""Writes the same ten records in every format, with pyarrow: PYTHONPATH=$(tools/arrow) make_records.py

people.jsonl, .parquet (row groups of 4, zstd), .stream.arrow (batches of 4, as Hugging Face's data sets),
.file.arrow (lz4, words as a dictionary), .tar (each record's fields as JSON, a text, a class and an image); and
nothing.parquet, 100,000 images that are null; wrong.parquet, a text with a wrong byte and an image that is only a path;
views.arrow, two images and words as views, as Polars writes them; and what is refused: hole.parquet (one image of two),
twice.parquet (two columns of one name), coded.stream.arrow (words as a dictionary, which only files may have).
"""

import io
import json
import pathlib
import tarfile

import pyarrow as pa
import pyarrow.parquet

HERE = pathlib.Path(__file__).parent


def record(i):
    return {
        "text": "line %d of some text, \u00e9" % i,
        "word": ["red", "green", "blue"][i % 3],
        "label": i % 4,
        "score": i / 4 - 1,
        "tokens": [(7 * i + k) % 50 for k in range(3 + i)],
        "point": [i / 2, -1.5, float(i * i)],
        "messages": [{"role": "user", "content": "fox %d" % i}, {"role": "assistant", "content": "lazy"}],
        "hole": None if i == 5 else "whole",
    }


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SCHEMA = pa.schema([
    ("text", pa.string()), ("word", pa.string()), ("label", pa.int64()), ("score", pa.float64()),
    ("tokens", pa.list_(pa.int32())), ("point", pa.list_(pa.float32(), 3)),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))), ("hole", pa.large_string()),
    ("when", pa.timestamp("us")), ("image", IMAGE)])


def main():
    records = [record(i) for i in range(10)]
    images = [(HERE.parent / name).read_bytes() for name in ("picture.jpg", "picture.png")]
    (HERE / "people.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    rows = [dict(r, when=i, image={"bytes": images[i % 2], "path": None}) for i, r in enumerate(records)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pa.parquet.write_table(table, HERE / "people.parquet", row_group_size=4, compression="zstd",
                           write_statistics=False)
    with pa.ipc.new_stream(HERE / "people.stream.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    coded = table.set_column(1, "word", table["word"].dictionary_encode().combine_chunks())
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(HERE / "people.file.arrow", coded.schema, options=options) as writer:
        writer.write_table(coded, max_chunksize=4)
    nothing = pa.table({"image": pa.nulls(100_000, pa.binary())})  # in fewer bytes than rows
    pa.parquet.write_table(nothing, HERE / "nothing.parquet")
    pa.parquet.write_table(pa.table({"image": pa.array([images[1], None], pa.binary())}), HERE / "hole.parquet")
    pa.parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), HERE / "twice.parquet")
    words = pa.table({"word": pa.array(["red", "green"]).dictionary_encode()})
    with pa.ipc.new_stream(HERE / "coded.stream.arrow", words.schema) as writer:
        writer.write_table(words)
    texts = pa.array([b"fine", b"bad \xff"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    wrong = pa.table({"text": texts, "image": pa.array([{"bytes": None, "path": "a.png"}] * 2, IMAGE)})
    pa.parquet.write_table(wrong, HERE / "wrong.parquet", write_statistics=False)
    views = pa.table({"word": pa.array(["short", "a word that lies elsewhere"], pa.string_view()),
                      "image": pa.array(images, pa.binary_view())})
    with pa.ipc.new_file(HERE / "views.arrow", views.schema) as writer:
        writer.write_table(views)
    with tarfile.open(HERE / "people.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for i, one in enumerate(records):
            key = "a/" + "long" * 40 + "/%06d" % i if i == 3 else "a/%06d" % i
            fields = {
k: v for k, v in one.items() if k not in ("text", "label")}
            image = ("jpg", "png")[i % 2]
            for ending, content in [("json", json.dumps(fields).encode()), ("txt", one["text"].encode()),
                                    ("cls", b"%d\n" % one["label"]), (image, images[i % 2])]:
                member = tarfile.TarInfo(key + "." + ending)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main()
