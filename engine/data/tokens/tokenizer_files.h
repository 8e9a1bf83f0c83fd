// The files that ReadTokenizer() knows, by their kind.
#pragma once

#include <memory>

#include "engine/data/files/mapped_file.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

/// Hugging Face's tokenizer.json with byte-level BPE. Throws ConfigError for an entry of another
/// kind, WorldError with the path for all else.
std::unique_ptr<Tokenizer> ReadByteLevelBpe(const MappedFile& file);

/// A SentencePiece model (unigram, BPE, word or char). Throws as ReadByteLevelBpe() does.
std::unique_ptr<Tokenizer> ReadSentencePiece(const MappedFile& file);

}  // namespace strata::data
