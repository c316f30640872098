// Sentences, vocabularies, translations and their BLEU.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs to_python(const std::vector<data::SentencePair>& pairs) {
  Pairs tuples;
  for (const auto& pair : pairs) tuples.emplace_back(pair.source, pair.target);
  return tuples;
}

std::vector<data::SentencePair> from_python(const Pairs& tuples) {
  std::vector<data::SentencePair> pairs;
  for (const auto& [source, target] : tuples) pairs.push_back({source, target});
  return pairs;
}

data::VocabularyOptions vocabulary_options(std::vector<std::string> special_words, int64_t max_size,
                                           int64_t min_count) {
  return {std::move(special_words), max_size, min_count};
}

data::TranslationForm to_form(const std::string& name) {
  if (name == "whole") return data::TranslationForm::kWhole;
  if (name == "tutorial") return data::TranslationForm::kTutorial;
  throw InvalidArgument("translation: form must be \"whole\" or \"tutorial\", got \"{}\"", name);
}

void bind_vocabulary(nb::module_& m) {
  const std::vector<std::string> special = data::VocabularyOptions{}.special_words;
  nb::class_<data::Vocabulary>(m, "Vocabulary", R"(The words that a model knows, numbered from 0; immutable.

The first ones are special: UNKNOWN, PADDING, END and, unless it is left out, BEGIN.)")
      .def_ro_static("UNKNOWN", &data::Vocabulary::kUnknown)
      .def_ro_static("PADDING", &data::Vocabulary::kPadding)
      .def_ro_static("END", &data::Vocabulary::kEnd)
      .def_ro_static("BEGIN", &data::Vocabulary::kBegin)
      .def_static(
          "build",
          [](const std::vector<std::string>& sentences, std::vector<std::string> special_words, int64_t max_size,
             int64_t min_count) {
            return data::Vocabulary::build(sentences,
                                           vocabulary_options(std::move(special_words), max_size, min_count));
          },
          "sentences"_a, "special_words"_a = special, "max_size"_a = 0, "min_count"_a = 1,
          R"(Of the words of the sentences, the most frequent first.

max_size: so many at most, the special ones included, 0: all. min_count: rarer words are unknown.)")
      .def_static(
          "read",
          [](const Path& path, std::vector<std::string> special_words, int64_t max_size) {
            return data::Vocabulary::read(FileSystem::local(), path.bytes,
                                          vocabulary_options(std::move(special_words), max_size, 1));
          },
          "path"_a, "special_words"_a = special, "max_size"_a = 0, "From a file with a word on each line.")
      .def(
          "write", [](const data::Vocabulary& self, const Path& path) { self.write(FileSystem::local(), path.bytes); },
          "path"_a)
      .def("__len__", &data::Vocabulary::size)
      .def("has_begin", &data::Vocabulary::has_begin)
      .def("word", &data::Vocabulary::word, "id"_a)
      .def(
          "id", [](const data::Vocabulary& self, const std::string& word) { return self.id(word); }, "word"_a,
          "UNKNOWN for a word that is not in it.")
      .def(
          "ids", [](const data::Vocabulary& self, const std::string& sentence) { return self.ids(sentence); },
          "sentence"_a, "Of the words between white space.")
      .def(
          "sentence", [](const data::Vocabulary& self, const std::vector<int32_t>& ids) { return self.sentence(ids); },
          "ids"_a, "Words with spaces between them, up to the first END; special words but UNKNOWN are left out.")
      .def("__eq__", [](const data::Vocabulary& a, const data::Vocabulary& b) { return a == b; });
}

void bind_pairs(nb::module_& m) {
  helped(m).def(
      "read_segment_pairs",
      [](const Path& source, const Path& target) {
        return to_python(data::read_segment_pairs(FileSystem::local(), source.bytes, target.bytes));
      },
      "source_path"_a, "target_path"_a,
      R"([(sentence, translation), ...] from two files with lines <seg id="1">text</seg>, as WMT hands them out.)");
  helped(m).def(
      "read_sentence_pairs",
      [](const Path& path) { return to_python(data::read_sentence_pairs(FileSystem::local(), path.bytes)); }, "path"_a,
      "[(sentence, translation), ...] from a file with a tab between the two on each line.");
  helped(m).def(
      "write_sentence_pairs",
      [](const Path& path, const Pairs& pairs) {
        data::write_sentence_pairs(FileSystem::local(), path.bytes, from_python(pairs));
      },
      "path"_a, "pairs"_a, "Writes what read_sentence_pairs() reads.");
  helped(m).def(
      "write_synthetic_translation",
      [](const Path& directory, int64_t train_pairs, int64_t test_pairs, Seed seed) {
        data::write_synthetic_translation(FileSystem::local(), directory.bytes, {train_pairs, test_pairs, seed});
      },
      "directory"_a, "train_pairs"_a = 4000, "test_pairs"_a = 200, "seed"_a = 0,
      "Writes a made-up language and its translation: train.source.sgm, train.target.sgm, test.source.sgm, "
      "test.target.sgm.");
}

void bind_translation(nb::module_& m) {
  helped(m).def(
      "translation",
      [](const Pairs& pairs, const data::Vocabulary& source, const data::Vocabulary& target, int64_t source_length,
         int64_t target_length, const std::string& form, bool cut_long, bool shuffle, int64_t num_samples,
         int64_t num_shards, int64_t shard_id, std::optional<Seed> seed) {
        return data::translation(from_python(pairs), source, target,
                                 {.source_length = source_length,
                                  .target_length = target_length,
                                  .form = to_form(form),
                                  .cut_long = cut_long,
                                  .num_samples = num_samples,
                                  .shuffle = shuffle,
                                  .num_shards = num_shards,
                                  .shard_id = shard_id,
                                  .seed = or_global(seed)});
      },
      "pairs"_a, "source"_a, "target"_a, "source_length"_a, "target_length"_a, "form"_a = "whole", "cut_long"_a = false,
      "shuffle"_a = true, "num_samples"_a = 0, "num_shards"_a = 1, "shard_id"_a = 0, "seed"_a = nb::none(),
      R"(Columns source int32[s], target int32[t] and label int32[t]; source and target are vocabularies.

form "whole": w1 ... END, BEGIN v1 ... and v1 ... END, each padded; pairs that do not fit are left out, or cut. "tutorial": the
first words of sources that have more than s + 1, as tutorial 004 has it. Where a target is padding, its label does not count.)");
  helped(m).def("source_rows", &data::source_rows, "sentences"_a, "vocabulary"_a, "length"_a,
                "int32[n,length]: the rows of sentences as translation() has them, those that are too long cut.");
}

void bind_bleu(nb::module_& m) {
  nb::class_<data::BleuScore>(m, "BleuScore")
      .def_ro("score", &data::BleuScore::score, "0 to 100")
      .def_ro("matches", &data::BleuScore::matches)
      .def_ro("totals", &data::BleuScore::totals)
      .def_ro("precisions", &data::BleuScore::precisions, "in percent, smoothed")
      .def_ro("brevity_penalty", &data::BleuScore::brevity_penalty)
      .def_ro("hypothesis_tokens", &data::BleuScore::hypothesis_tokens)
      .def_ro("reference_tokens", &data::BleuScore::reference_tokens)
      .def("__repr__", [](const data::BleuScore& self) { return fmt::format("BLEU {:.2f}", self.score); });
  helped(m).def(
      "bleu",
      [](const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
         bool tokenize) { return data::bleu(hypotheses, references, {tokenize}); },
      "hypotheses"_a, "references"_a, "tokenize"_a = true,
      R"(The BLEU of a corpus as sacrebleu defines it; references[i] is the list of right translations of sentence i.

tokenize: by mteval's v13a; else tokens are what stands between white space.)");
  helped(m).def(
      "tokenize_13a", [](const std::string& line) { return data::tokenize_13a(line); }, "line"_a,
      "The tokens of a line as mteval-v13a finds them.");
}

}  // namespace

void bind_text(nb::module_& data_module) {
  bind_vocabulary(data_module);
  bind_pairs(data_module);
  bind_translation(data_module);
  bind_bleu(data_module);
}

}  // namespace tessera::python
