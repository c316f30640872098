#include "tessera/data/sets/synthetic_cifar10.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::data {
namespace {

constexpr int kSide = 32;
constexpr size_t kPlane = size_t{kSide} * kSide;
constexpr int kNumClasses = 10;
constexpr int kNumTrainFiles = 5;
constexpr std::array<const char*, kNumClasses> kNames = {"disc",       "ring",     "square",   "triangle",     "cross",
                                                         "horizontal", "vertical", "diagonal", "checkerboard", "dots"};

// Draws are numbered: pixel p's noise is number p, the picture's settings follow.
class Dice {
 public:
  explicit Dice(const RandomStream& stream) : stream_(stream) {}
  float uniform(float low, float high) { return low + (high - low) * random_uniform(stream_, next_++); }
  bool chance(float probability) { return random_uniform(stream_, next_++) < probability; }
  uint32_t noise(uint64_t pixel) const { return random_bits(stream_, pixel); }

 private:
  RandomStream stream_;
  uint64_t next_ = kPlane;
};

using Colour = std::array<float, 3>;  // 0 .. 255

// Only additions, products and comparisons, so that all machines get the same bytes.
Colour hsv(float hue, float saturation, float value) {
  hue -= std::floor(hue);
  Colour colour;
  for (int c = 0; c < 3; ++c) {
    float distance = hue - static_cast<float>(c) / 3;
    distance = std::abs(distance - std::round(distance)) * 6;  // 0 at the channel's own hue, 3 opposite
    const float pure = std::clamp(2 - distance, 0.0F, 1.0F);
    colour[static_cast<size_t>(c)] = 255 * value * (1 - saturation + saturation * pure);
  }
  return colour;
}

struct Figure {
  int kind = 0;
  float x = 0, y = 0;  // centre of a shape, phase of a texture
  float size = 0;      // radius of a shape, period of a texture
  bool mirrored = false;

  // Whether the figure covers the pixel.
  bool covers(float px, float py) const {
    const float dx = px - x;
    const float dy = py - y;
    const auto stripe = [this](float t) { return t / size - std::floor(t / size) < 0.5F; };
    switch (kind) {
      case 0: return dx * dx + dy * dy < size * size;
      case 1: return dx * dx + dy * dy < size * size && dx * dx + dy * dy > 0.3F * size * size;
      case 2: return std::abs(dx) < 0.9F * size && std::abs(dy) < 0.9F * size;
      case 3: return std::abs(dy) < size && 2 * std::abs(dx) < (mirrored ? size - dy : size + dy);
      case 4: return std::max(std::abs(dx), std::abs(dy)) < size && std::min(std::abs(dx), std::abs(dy)) < 0.3F * size;
      case 5: return stripe(dy);
      case 6: return stripe(dx);
      case 7: return stripe((mirrored ? dx - dy : dx + dy) * 0.7F);
      case 8: return stripe(dx) != stripe(dy);
      default: {
        const float u = dx / size - std::round(dx / size);
        const float v = dy / size - std::round(dy / size);
        return u * u + v * v < 0.1F;
      }
    }
  }
};

void append_record(const RandomStream& stream, int label, std::string& out) {
  Dice dice(stream);
  const bool is_shape = label < 5;
  Figure figure{.kind = label};
  figure.size = is_shape ? dice.uniform(7, 12) : dice.uniform(6, 10);
  figure.x = is_shape ? dice.uniform(11, 20) : dice.uniform(0, 10);
  figure.y = is_shape ? dice.uniform(11, 20) : dice.uniform(0, 10);
  figure.mirrored = dice.chance(0.5F);
  // Some pictures have any hue: colour is quickly learned and takes one far, the rest needs the shape.
  const float own_hue = static_cast<float>(label) / kNumClasses + dice.uniform(-0.05F, 0.05F);
  const float any_hue = dice.uniform(0, 1);
  const float hue = dice.chance(0.125F) ? any_hue : own_hue;
  const Colour front = hsv(hue, dice.uniform(0.6F, 1), dice.uniform(0.65F, 1));
  const Colour back = hsv(dice.uniform(0, 1), dice.uniform(0, 0.3F), dice.uniform(0.1F, 0.45F));
  const float noise = dice.uniform(4, 24);  // grey levels, to both sides

  std::array<char, 1 + 3 * kPlane> record;
  record[0] = static_cast<char>(label);
  for (size_t y = 0; y < kSide; ++y) {
    for (size_t x = 0; x < kSide; ++x) {
      const Colour& colour = figure.covers(static_cast<float>(x), static_cast<float>(y)) ? front : back;
      const size_t pixel = y * kSide + x;
      const uint32_t bits = dice.noise(pixel);
      for (size_t c = 0; c < 3; ++c) {
        const float value = colour[c] + noise * (static_cast<float>(bits >> (8 * c) & 255U) - 127.5F) / 127.5F;
        record[1 + c * kPlane + pixel] =
            static_cast<char>(static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)));
      }
    }
  }
  out.append(record.data(), record.size());
}

// Records [begin, end) of the set called `name`.
std::string records(const char* name, uint64_t seed, int64_t begin, int64_t end) {
  const uint64_t pictures = hash_name(std::string("data.synthetic_cifar10.") + name);
  const uint64_t labels = hash_name(std::string("data.synthetic_cifar10.labels.") + name);
  std::string out;
  out.reserve(static_cast<size_t>((end - begin) * (1 + 3 * kSide * kSide)));
  for (int64_t i = begin; i < end; ++i) {
    // Ten records in a row hold each class once, in an order drawn for them.
    std::array<int, kNumClasses> order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (int k = 0; k + 1 < kNumClasses; ++k) {
      const auto draw = static_cast<uint64_t>(i / kNumClasses * kNumClasses + k);
      const auto other = k + random_below({seed, labels, 0}, draw, kNumClasses - k);
      std::swap(order[static_cast<size_t>(k)], order[static_cast<size_t>(other)]);
    }
    append_record({seed, pictures, static_cast<uint64_t>(i)}, order[static_cast<size_t>(i % kNumClasses)], out);
  }
  return out;
}

}  // namespace

void write_synthetic_cifar10(FileSystem& files, const std::string& directory, const SyntheticCifar10Options& options) {
  if (options.train_records < kNumTrainFiles || options.test_records < 1) {
    throw InvalidArgument("synthetic cifar10: needs at least {} training and 1 test records, got {} and {}",
                          kNumTrainFiles, options.train_records, options.test_records);
  }
  // A file is made in memory.
  constexpr int64_t kMostRecords = 1'000'000;
  if (options.train_records > kMostRecords || options.test_records > kMostRecords) {
    throw InvalidArgument("synthetic cifar10: train_records and test_records must be at most {}, got {} and {}",
                          kMostRecords, options.train_records, options.test_records);
  }
  files.create_directories(directory);
  const auto write = [&](const std::string& name, const std::string& content) {
    files.write_atomically(join_path(directory, name), content);
  };
  for (int i = 0; i < kNumTrainFiles; ++i) {
    write(fmt::format("data_batch_{}.bin", i + 1),
          records("train", options.seed, options.train_records * i / kNumTrainFiles,
                  options.train_records * (i + 1) / kNumTrainFiles));
  }
  write("test_batch.bin", records("test", options.seed, 0, options.test_records));
  std::string names;
  for (const char* name : kNames) names += std::string(name) + "\n";
  write("batches.meta.txt", names);
}

}  // namespace tessera::data
