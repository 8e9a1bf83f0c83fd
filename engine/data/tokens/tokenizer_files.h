// The readers behind ReadTokenizer(), one per kind of file.
#pragma once

#include <memory>

#include "engine/data/files/mapped_file.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

/// Reads Hugging Face's tokenizer.json with byte-level BPE. Throws ConfigError for an entry of the
/// wrong type, WorldError with the path for all other errors.
std::unique_ptr<Tokenizer> ReadByteLevelBpe(const MappedFile& file);

/// Reads a SentencePiece model (unigram, BPE, word or char). Throws as ReadByteLevelBpe() does.
std::unique_ptr<Tokenizer> ReadSentencePiece(const MappedFile& file);

}  // namespace strata::data
