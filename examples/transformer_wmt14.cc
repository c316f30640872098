// A Transformer that translates, the job of the tutorial on elastic training, on as many ranks as it is started with:
//   transformer_wmt14 --source newstest2014-fren-ref.en.sgm --target newstest2014-fren-ref.fr.sgm        one rank
//   tessera run --threads 4 transformer_wmt14 --source ... --target ...                     four threads
//   tessera run -n 4 transformer_wmt14 --source ... --target ...                            four processes
//   tessera run -n 4 transformer_wmt14 ... --parallel_mode pipeline_parallel --stages 2 --micro_batches 4
// The batch size is that of the global batch: the losses do not depend on the number of ranks. docs/wmt14.md leads
// through it, and examples/elastic.sh trains on eight ranks and goes on with four.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace {

using namespace tessera;  // NOLINT: an example reads better without prefixes

struct Options {
  std::string source, target, pairs;
  std::string test_source, test_target;
  std::string make_data;
  int64_t train_pairs = 4000;
  int64_t test_pairs = 200;
  std::string vocabulary;
  int64_t vocabulary_size = 0;
  std::string form = "whole";
  bool cut_long = false;
  int64_t source_length = 16;
  int64_t target_length = 16;
  int64_t hidden_size = 128;
  int64_t ffn_hidden_size = 0;
  int64_t encoder_layers = 1;
  int64_t decoder_layers = 1;
  int64_t num_heads = 8;
  double dropout = 0;
  int64_t epochs = 2;
  int64_t steps = 0;
  int64_t batch_size = 32;
  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  double weight_decay = 0;
  std::string parallel_mode;
  int64_t model_parallel = 1;
  bool parallel_optimizer = false;
  int stages = 0;
  std::vector<int> stage_ranks;
  int64_t micro_batches = 0;
  std::string schedule = "auto";
  std::string strategy_ckpt_save_file, strategy_ckpt_load_file;
  bool only_compile = false;
  std::string checkpoint_dir;
  std::string prefix = "transformer";
  bool integrated_save = true;
  int64_t save_checkpoint_steps = 0;
  int64_t keep_checkpoint_max = 5;
  std::string resume;
  std::string evaluate;
  std::string predictions;
  std::string translations;
  int64_t beam_size = 4;
  double length_penalty = 0.6;
  double min_bleu = 0;
  int64_t print_loss = 0;
  bool print_time = false;
  bool progress = false;
  std::string log_format = "text";
  std::string log_dir;
  uint64_t seed = 1;
  int num_threads = 0;
  std::string device;
  std::string kernels = "fixed";
};

// What a number must be.
const CLI::Range kCount(int64_t{1}, int64_t{1} << 30);
const CLI::Range kCountOrNone(int64_t{0}, int64_t{1} << 30);

void add_text_options(CLI::App& app, Options& o) {
  auto* source = app.add_option("--source", o.source, "segment file (.sgm) of sentences to train on");
  auto* target = app.add_option("--target", o.target, "segment file of their translations");
  source->needs(target);
  target->needs(source);
  app.add_option("--pairs", o.pairs, "instead: a text file, on each line a sentence, a tab and its translation")
      ->excludes(source);
  auto* test_source =
      app.add_option("--test_source", o.test_source, "segment file of sentences to be translated at the end");
  auto* test_target =
      app.add_option("--test_target", o.test_target, "segment file of what they should become: gives BLEU");
  test_source->needs(test_target);
  test_target->needs(test_source);
  auto* make_data = app.add_option("--make_data", o.make_data,
                                   "write a made-up language and its translation into this folder, and end");
  app.add_option("--train_pairs", o.train_pairs, "pairs of --make_data to train on")
      ->check(kCount)
      ->needs(make_data)
      ->capture_default_str();
  app.add_option("--test_pairs", o.test_pairs, "pairs of --make_data that are held out")
      ->check(kCount)
      ->needs(make_data)
      ->capture_default_str();
  app.add_option("--vocabulary", o.vocabulary,
                 "folder with source.txt and target.txt, a word a line; written from the text where it has none");
  app.add_option("--vocabulary_size", o.vocabulary_size,
                 "words of each language at most, the most frequent; 0: all that there are")
      ->check(kCountOrNone)
      ->capture_default_str();
  app.add_option(
         "--form", o.form,
         "whole: whole sentences, which begin and end; tutorial: the first words of long ones, as tutorial 004 has it")
      ->check(CLI::IsMember({"whole", "tutorial"}))
      ->capture_default_str();
  app.add_flag("--cut_long", o.cut_long, "cut sentences that are too long instead of leaving them out (--form whole)");
  app.add_option("--source_length", o.source_length, "tokens of a sentence")->check(kCount)->capture_default_str();
  app.add_option("--target_length", o.target_length, "tokens of a translation")->check(kCount)->capture_default_str();
}

void add_network_options(CLI::App& app, Options& o) {
  app.add_option("--hidden_size", o.hidden_size, "features of a token")->check(kCount)->capture_default_str();
  app.add_option("--ffn_hidden_size", o.ffn_hidden_size, "features between the feed-forward's products; 0: hidden_size")
      ->check(kCountOrNone)
      ->capture_default_str();
  app.add_option("--encoder_layers", o.encoder_layers, "layers that read")->check(kCount)->capture_default_str();
  app.add_option("--decoder_layers", o.decoder_layers, "layers that write")->check(kCount)->capture_default_str();
  app.add_option("--num_heads", o.num_heads, "heads of an attention")->check(kCount)->capture_default_str();
  app.add_option("--dropout", o.dropout, "the part of features that is dropped in training")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
}

void add_training_options(CLI::App& app, Options& o) {
  app.add_option("--epochs", o.epochs, "times through the pairs")->check(kCount)->capture_default_str();
  app.add_option("--steps", o.steps, "steps per epoch at most; 0: all")->check(kCountOrNone)->capture_default_str();
  app.add_option("--batch_size", o.batch_size, "pairs per step, over all ranks")->check(kCount)->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "adam, or adam_weight_decay as tutorial 004 takes it")
      ->check(CLI::IsMember({"adam", "adam_weight_decay"}))
      ->capture_default_str();
  auto* rate = app.add_option("--learning_rate", o.learning_rate, "a fixed rate, or with --warmup_steps its peak")
                   ->check(CLI::NonNegativeNumber)
                   ->capture_default_str();
  app.add_option("--warmup_steps", o.warmup_steps,
                 "the rate rises over so many steps, then falls along a cosine; 0: fixed")
      ->check(kCountOrNone)
      ->needs(rate)
      ->capture_default_str();
  app.add_option("--weight_decay", o.weight_decay,
                 "of weights; biases and normalisations have none (adam_weight_decay)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--print_loss", o.print_loss, "print a line `epoch: 1 step: N, loss is ...` every so many steps")
      ->check(kCountOrNone);
  app.add_flag("--print_time", o.print_time, "print the time of an epoch and of its steps");
  app.add_flag("--progress,!--no_progress", o.progress, "progress bar on rank 0 (off by default)");
  app.add_option("--log_format", o.log_format, "text; or json: each line on standard output is a JSON object")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log_dir", o.log_dir,
                 "write the training there while it goes on: log.csv, log.jsonl and an event file for TensorBoard");
  app.add_option("--seed", o.seed, "seed of the initial values and of the order of the pairs")->capture_default_str();
  app.add_option("--device", o.device,
                 "cpu, or a GPU: cuda:0, cuda:1, ..., or cuda, the one with this rank's number on its host")
      ->type_name("TEXT");
  app.add_option("--num_threads", o.num_threads, "compute threads per rank; 0: cores / ranks")->check(kCountOrNone);
  app.add_option("--kernels", o.kernels, "fixed; or measured: the fastest here, found at the first start")
      ->check(CLI::IsMember({"fixed", "measured"}))
      ->capture_default_str();
}

void add_parallel_options(CLI::App& app, Options& o) {
  app.add_option("--parallel_mode", o.parallel_mode,
                 "stand_alone, data_parallel, semi_auto_parallel, auto_parallel or pipeline_parallel; default: by the "
                 "number of ranks")
      ->check(
          CLI::IsMember({"stand_alone", "data_parallel", "semi_auto_parallel", "auto_parallel", "pipeline_parallel"}));
  app.add_option("--model_parallel", o.model_parallel,
                 "semi_auto_parallel, pipeline_parallel: so many ranks share each layer, the others of all or of a "
                 "stage share the batch; in a stage of other ranks than the next one's as many as divide its own")
      ->check(kCount)
      ->capture_default_str();
  app.add_flag("--parallel_optimizer", o.parallel_optimizer, "ranks share the optimizer's states and work");
  auto* stages = app.add_option("--stages", o.stages,
                                "pipeline_parallel: layers, readers first, are dealt to so many stages; "
                                "auto_parallel: a search cuts the network into so many")
                     ->check(kCount);
  app.add_option("--stage_ranks", o.stage_ranks,
                 "how many ranks each stage has, such as 3,1: stage 0 the first ones; default: equally many")
      ->delimiter(',')
      ->check(kCount)
      ->needs(stages);
  app.add_option("--micro_batches", o.micro_batches, "of a batch, which pass through the stages; 0: as many as stages")
      ->check(kCountOrNone)
      ->needs(stages);
  app.add_option("--schedule", o.schedule, "the order of the stages' work by name; auto: the best that a search finds")
      ->needs(stages)
      ->capture_default_str();
  app.add_option("--strategy_ckpt_save_file", o.strategy_ckpt_save_file,
                 "write how semi_auto_parallel or pipeline_parallel splits operators and parameters into this file; "
                 "{} in its name is the stage");
  app.add_option("--strategy_ckpt_load_file", o.strategy_ckpt_load_file, "split them as this file says");
  app.add_flag("--only_compile", o.only_compile, "compile the training step, write the strategy file, and end");
}

void add_checkpoint_options(CLI::App& app, Options& o) {
  auto* directory = app.add_option("--checkpoint_dir", o.checkpoint_dir, "save checkpoints here");
  app.add_option("--prefix", o.prefix, "what the names of checkpoints begin with")
      ->needs(directory)
      ->capture_default_str();
  app.add_flag("--integrated_save,!--no_integrated_save", o.integrated_save,
               "one file of whole values; no: each rank its slices, in checkpoint_dir/rank_N")
      ->needs(directory);
  app.add_option("--save_checkpoint_steps", o.save_checkpoint_steps, "steps between checkpoints; 0: one per epoch")
      ->check(kCountOrNone)
      ->needs(directory);
  app.add_option("--keep_checkpoint_max", o.keep_checkpoint_max, "older ones are removed")
      ->check(kCount)
      ->needs(directory)
      ->capture_default_str();
  auto* resume = app.add_option("--resume", o.resume, "checkpoint, or folder of checkpoints, to go on from");
  auto* evaluate = app.add_option("--evaluate", o.evaluate, "do not train: take the parameters of this checkpoint")
                       ->excludes(directory)
                       ->excludes(resume);
  app.add_option("--predictions", o.predictions,
                 "write what is predicted of the first batch of pairs into this file: of each token the next one")
      ->needs(evaluate);
  auto* test_source = app.get_option("--test_source");
  app.add_option("--translations", o.translations, "write the translations of --test_source into this file")
      ->needs(test_source);
  app.add_option("--beam_size", o.beam_size, "beginnings of a translation that a search keeps; 1: greedy")
      ->check(kCount)
      ->needs(test_source)
      ->capture_default_str();
  app.add_option("--length_penalty", o.length_penalty, "how much longer translations are preferred (GNMT's alpha)")
      ->check(CLI::NonNegativeNumber)
      ->needs(test_source)
      ->capture_default_str();
  app.add_option("--min_bleu", o.min_bleu, "fail when the test sentences' BLEU is below this")
      ->check(CLI::Range(0.0, 100.0))
      ->needs(test_source);
}

// The text to train on, and what it is made into.
struct Text {
  std::vector<data::SentencePair> pairs;
  data::Vocabulary source, target;
};

data::Vocabulary vocabulary(FileSystem& files, const Options& o, const std::string& name,
                            const std::vector<data::SentencePair>& pairs, std::string data::SentencePair::*side) {
  data::VocabularyOptions options;
  options.max_size = o.vocabulary_size;
  if (o.form == "tutorial") options.special_words.pop_back();
  const std::string path = o.vocabulary.empty() ? "" : join_path(o.vocabulary, name);
  if (!path.empty() && files.exists(path)) return data::Vocabulary::read(files, path, options);
  std::vector<std::string> sentences;
  for (const auto& pair : pairs) sentences.push_back(pair.*side);
  return data::Vocabulary::build(sentences, options);
}

Text read_text(FileSystem& files, const Options& o) {
  auto pairs =
      o.pairs.empty() ? data::read_segment_pairs(files, o.source, o.target) : data::read_sentence_pairs(files, o.pairs);
  auto source = vocabulary(files, o, "source.txt", pairs, &data::SentencePair::source);
  auto target = vocabulary(files, o, "target.txt", pairs, &data::SentencePair::target);
  return {std::move(pairs), std::move(source), std::move(target)};
}

data::Dataset dataset(const Text& text, const Options& o) {
  const auto rows =
      data::translation(text.pairs, text.source, text.target,
                        {.source_length = o.source_length,
                         .target_length = o.target_length,
                         .form = o.form == "whole" ? data::TranslationForm::kWhole : data::TranslationForm::kTutorial,
                         .cut_long = o.cut_long,
                         .seed = o.seed})
          .batch(o.batch_size, {.drop_remainder = true});
  return o.steps > 0 ? rows.take(o.steps) : rows;
}

train::PipelineOptions pipeline_options(const Options& o) {
  return {.stages = o.stages, .ranks = o.stage_ranks, .micro_batches = o.micro_batches, .schedule = o.schedule};
}

// The ranks of each stage; one stage has all of them.
mesh::StageRanks ranks_of_stages(const Options& o, int num_ranks) {
  return o.stages == 0 ? mesh::StageRanks({num_ranks}) : train::stage_ranks(pipeline_options(o), num_ranks);
}

// By stage, how many ranks share each layer, and how many share the batch. Where stages differ, each shares its layers
// among the most ranks that divide both --model_parallel and its own number.
std::vector<nn::TransformerOpParallelConfig> sharing(const Options& o, const mesh::StageRanks& ranks) {
  std::vector<nn::TransformerOpParallelConfig> configs;
  bool is_kept = false;  // on some stage
  for (const int count : ranks.counts()) {
    const int64_t model_parallel = std::gcd(o.model_parallel, int64_t{count});
    is_kept = is_kept || model_parallel == o.model_parallel;
    configs.push_back({.data_parallel = count / model_parallel, .model_parallel = model_parallel});
  }
  if (is_kept) return configs;
  if (ranks.are_equal()) {
    throw InvalidArgument("--model_parallel must divide the {} ranks{}, is {}", ranks.count(0),
                          o.stages > 0 ? " of a stage" : "", o.model_parallel);
  }
  throw InvalidArgument("--model_parallel must divide the ranks of one stage at least, which have {}, is {}",
                        ranks.to_string(), o.model_parallel);
}

std::unique_ptr<nn::Cell> network(const Text& text, const Options& o, const std::string& mode, int num_ranks) {
  nn::TranslatorOptions options{.source_vocabulary = text.source.size(),
                                .target_vocabulary = text.target.size(),
                                .max_length = std::max(o.source_length, o.target_length),
                                .padding = data::Vocabulary::kPadding};
  options.transformer = {.hidden_size = o.hidden_size,
                         .ffn_hidden_size = o.ffn_hidden_size > 0 ? o.ffn_hidden_size : o.hidden_size,
                         .encoder_layers = o.encoder_layers,
                         .decoder_layers = o.decoder_layers,
                         .num_heads = o.num_heads,
                         .attention_dropout_rate = o.dropout,
                         .hidden_dropout_rate = o.dropout};
  const int64_t layers = o.encoder_layers + o.decoder_layers;
  if (mode == "pipeline_parallel") {
    if (o.stages > layers) throw InvalidArgument("--stages must be at most the {} layers, is {}", layers, o.stages);
    options.transformer.stage_of = [stages = o.stages, layers](int64_t layer) {
      return static_cast<int>(layer * stages / layers);
    };
  }
  if (mode == "semi_auto_parallel" || mode == "pipeline_parallel") {
    const auto configs = sharing(o, ranks_of_stages(o, num_ranks));
    options.transformer.parallel_of = [configs, stage_of = options.transformer.stage_of](int64_t layer) {
      return configs[stage_of ? static_cast<size_t>(stage_of(layer)) : 0];
    };
  }
  return nn::translator(options);
}

std::unique_ptr<nn::Optimizer> optimizer(const Options& o, int64_t total_steps) {
  nn::LearningRate rate = o.learning_rate;
  if (o.warmup_steps > 0) {
    rate = nn::with_warmup(
        nn::cosine_decay_lr({.max_lr = o.learning_rate, .total_steps = total_steps, .decay_epochs = total_steps}),
        o.warmup_steps);
  }
  if (o.optimizer == "adam") return std::make_unique<nn::Adam>(nn::AdamOptions{.learning_rate = rate});
  const auto has_decay = [](const std::string& name) {
    return name.find("layernorm") == std::string::npos && name.find("bias") == std::string::npos;
  };
  return std::make_unique<nn::AdamWeightDecay>(nn::AdamWeightDecayOptions{
      .learning_rate = rate, .groups = {{.matches = has_decay, .weight_decay = o.weight_decay}}});
}

// One line for each row of the first batch: of each token the one that is predicted to follow, and its score.
void write_predictions(train::Model& model, const Text& text, const data::Dataset& rows, const std::string& path) {
  auto batches = rows.batches();
  const auto batch = *batches.next();
  const Tensor scores = model.predict({batch[0], batch[1]});
  if (model.context().rank() != 0) return;
  const int64_t length = batch[1].shape()[1];
  const auto vocabulary_size = static_cast<size_t>(scores.shape()[1]);
  const auto values = scores.values<float>();
  std::string lines;
  for (int64_t row = 0; row < scores.shape()[0]; ++row) {
    const auto own = values.subspan(static_cast<size_t>(row) * vocabulary_size, vocabulary_size);
    const auto best = std::max_element(own.begin(), own.end());
    lines += fmt::format("{} {}{}", text.target.word(best - own.begin()), shortest(*best),
                         (row + 1) % length == 0 ? "\n" : " ");
  }
  model.context().file_system().write_atomically(path, lines);
}

// Translates the test sentences and returns their BLEU.
double score_test(train::Model& model, const Text& text, const Options& o) {
  FileSystem& files = model.context().file_system();
  const auto pairs = data::read_segment_pairs(files, o.test_source, o.test_target);
  std::vector<std::string> sources;
  std::vector<std::vector<std::string>> references;
  for (const auto& pair : pairs) {
    sources.push_back(pair.source);
    references.push_back({pair.target});
  }
  const Tensor rows = data::source_rows(sources, text.source, o.source_length);
  std::vector<std::string> translations;
  for (const auto& found : train::translate(
           model, rows,
           {.search = {.beam_size = o.beam_size, .max_length = o.target_length, .length_penalty = o.length_penalty}})) {
    translations.push_back(text.target.sentence(found.tokens));
  }
  if (!o.translations.empty() && model.context().rank() == 0) {
    std::string lines;
    for (const auto& translation : translations) lines += translation + "\n";
    files.write_atomically(o.translations, lines);
  }
  return data::bleu(translations, references).score;
}

// The file in which this rank's strategies are written.
std::string strategy_file(const Options& o, const cluster::Context& context) {
  std::string name = o.strategy_ckpt_save_file;
  const size_t at = name.find("{}");
  if (at == std::string::npos) return name;
  return name.replace(at, 2, std::to_string(ranks_of_stages(o, context.size()).stage_of(context.rank())));
}

// Prints lines as --log_format says, on rank 0.
train::PrintLine printer(cluster::Context& context, const Options& o) {
  return [&context, is_json = o.log_format == "json"](const std::string& line) {
    if (context.rank() != 0) return;
    train::print_line(is_json ? train::json_message(context.clock().wall_ms(), line) : line);
  };
}

train::Callbacks callbacks(const Options& o, cluster::Context& context, int64_t steps_per_epoch) {
  train::Callbacks list;
  const auto print = printer(context, o);
  const bool is_json = o.log_format == "json";
  if (o.print_loss > 0) list.emplace_back(train::LossMonitor(o.print_loss, print));
  if (o.print_time) {
    list.emplace_back(is_json ? train::TimeMonitor(0, print) : train::TimeMonitor());
  }
  if (o.progress || is_json) {
    list.emplace_back(train::ProgressBar({.rows_per_step = o.batch_size,
                                          .row_name = "pairs",
                                          .steps = o.progress,
                                          .format = train::parse_log_format(o.log_format)}));
  }
  if (!is_json) list.emplace_back(train::EpochSummary({.row_name = "pairs"}));
  if (!o.log_dir.empty()) {
    list.emplace_back(train::CsvLog(join_path(o.log_dir, "log.csv")));
    list.emplace_back(train::JsonLog(join_path(o.log_dir, "log.jsonl")));
    list.emplace_back(
        train::TensorBoard(o.log_dir, {.hyper_parameters = {{"batch_size", static_cast<double>(o.batch_size)},
                                                            {"optimizer", o.optimizer},
                                                            {"learning_rate", o.learning_rate},
                                                            {"hidden_size", static_cast<double>(o.hidden_size)},
                                                            {"dropout", o.dropout}}}));
  }
  if (!o.checkpoint_dir.empty()) {
    const auto folder =
        o.integrated_save ? o.checkpoint_dir : join_path(o.checkpoint_dir, fmt::format("rank_{}", context.rank()));
    list.emplace_back(train::ModelCheckpoint(
        o.prefix, folder,
        {.save_checkpoint_steps = o.save_checkpoint_steps > 0 ? o.save_checkpoint_steps : steps_per_epoch,
         .keep_checkpoint_max = o.keep_checkpoint_max,
         .integrated_save = o.integrated_save}));
  }
  return list;
}

int run(cluster::Context& context, const Options& o) {
  const auto say = printer(context, o);
  FileSystem& files = context.file_system();
  if (!o.make_data.empty()) {
    if (context.rank() == 0) {
      data::write_synthetic_translation(files, o.make_data,
                                        {.train_pairs = o.train_pairs, .test_pairs = o.test_pairs, .seed = o.seed});
    }
    say(fmt::format("wrote {} training and {} test pairs to {}", o.train_pairs, o.test_pairs, o.make_data));
    return 0;
  }
  const Text text = read_text(files, o);
  if (!o.vocabulary.empty() && context.rank() == 0) {
    files.create_directories(o.vocabulary);
    const auto keep = [&](const data::Vocabulary& words, const char* name) {
      const auto path = join_path(o.vocabulary, name);
      if (!files.exists(path)) words.write(files, path);
    };
    keep(text.source, "source.txt");
    keep(text.target, "target.txt");
  }
  const auto rows = dataset(text, o);
  const int64_t steps_per_epoch = rows.get_dataset_size();
  if (steps_per_epoch < 1)
    throw InvalidArgument("the text has fewer than {} pairs that fit: use a smaller --batch_size", o.batch_size);
  const auto mode = o.parallel_mode.empty() ? (context.size() > 1 ? "data_parallel" : "stand_alone") : o.parallel_mode;
  const bool evaluating = !o.evaluate.empty();
  const auto net = network(text, o, mode, context.size());
  const auto steps = optimizer(o, o.epochs * steps_per_epoch);
  train::ModelOptions options{
      .parallel_mode = train::parse_parallel_mode(mode),
      .full_batch = mode == "semi_auto_parallel",
      .strategy_ckpt_save_file = strategy_file(o, context),
      .strategy_ckpt_load_file = o.strategy_ckpt_load_file,
      .pipeline = pipeline_options(o),
      .parallel_optimizer = o.parallel_optimizer,
      .seed = o.seed,
      .session = {
          .device = o.device,
          .num_threads = o.num_threads,
          .kernel_choice = session::parse_kernel_choice(o.kernels),
          .kernel_cache = o.kernels == "measured" ? cluster::cache_directory_from_environment() : std::string()}};
  if (o.parallel_optimizer) options.parallel_optimizer_threshold = 0;  // all of them: this network is small
  train::Model model(context, *net, nullptr, evaluating ? nullptr : steps.get(), options);
  say(fmt::format("{} pairs, {} and {} words; {} pairs a step, {} steps an epoch; {} rank{} ({}), {}",
                  text.pairs.size(), text.source.size(), text.target.size(), o.batch_size, steps_per_epoch,
                  context.size(), context.size() == 1 ? "" : "s", context.transport(), mode));
  if (o.only_compile) {
    model.build(rows);
    return 0;
  }
  if (evaluating) {
    const auto columns = rows.columns();
    model.build_predict({columns[0].type, columns[1].type});
    model.load_parameters(o.evaluate);
  } else {
    if (!o.resume.empty()) {
      model.build(rows);
      const auto info = model.load_checkpoint(o.resume);
      say(fmt::format("going on from {}: epoch {}, step {}", o.resume, info.epoch, info.step_in_epoch));
    }
    model.train(o.epochs, rows, callbacks(o, context, steps_per_epoch));
  }
  if (!o.predictions.empty()) write_predictions(model, text, rows, o.predictions);
  if (o.test_source.empty()) return 0;
  const double score = score_test(model, text, o);
  say(fmt::format("test sentences: BLEU {:.2f}", score));
  if (score < o.min_bleu)
    throw Error(fmt::format("BLEU {:.2f} is below the {:.2f} that was asked for", score, o.min_bleu));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a Transformer to translate, on one rank or spread over many, and scores its translations.");
  add_text_options(app, options);
  add_network_options(app, options);
  add_training_options(app, options);
  add_parallel_options(app, options);
  add_checkpoint_options(app, options);
  try {
    app.parse(argc, argv);
    if (options.source.empty() && options.pairs.empty() && options.make_data.empty()) {
      throw CLI::RequiredError("--source and --target, or --pairs (--make_data writes a small text)");
    }
    if (options.form == "tutorial" && !options.test_source.empty()) {
      throw CLI::ValidationError("--test_source",
                                 "needs --form whole: no word begins a sentence of the tutorial's form");
    }
    const auto refuse_without = [&](const char* option, bool has_effect, const char* needed) {
      if (app.count(option) > 0 && !has_effect) throw CLI::ValidationError(option, std::string("needs ") + needed);
    };
    const bool is_pipeline = options.parallel_mode == "pipeline_parallel";
    refuse_without("--model_parallel", options.parallel_mode == "semi_auto_parallel" || is_pipeline,
                   "--parallel_mode semi_auto_parallel or pipeline_parallel");
    refuse_without("--stages", options.parallel_mode == "auto_parallel" || is_pipeline,
                   "--parallel_mode pipeline_parallel or auto_parallel");
    if (is_pipeline && options.stages == 0)
      throw CLI::RequiredError("--stages, with --parallel_mode pipeline_parallel,");
    refuse_without("--weight_decay", options.optimizer == "adam_weight_decay", "--optimizer adam_weight_decay");
    refuse_without("--cut_long", options.form == "whole", "--form whole");
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> options;
    for (const CLI::Option* option : app.get_options()) options.push_back(option->get_name());
    return cluster::usage_error(argv[0], cluster::describe_unknown_words(app.remaining(), options));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return code_after_output(app.exit(error));  // --help
    return cluster::usage_error(argv[0], error.what());
  }
  set_log_level(LogLevel::kInfo);
  return cluster::run(argc, argv, [&](cluster::Context& context) { return run(context, options); });
}
