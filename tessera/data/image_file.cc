#include "tessera/data/image_file.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tessera/base/error.h"

#ifdef TESSERA_HAS_JPEG
#include <jpeglib.h>
#endif
#ifdef TESSERA_HAS_PNG
#include <png.h>
#endif

namespace tessera::data {
namespace {

// Larger sides are a damaged header or an attack: 2^28 pixels are 768 MiB.
constexpr int64_t kMostPixels = int64_t{1} << 28;
// So many pixels of 32 bits and what describes them.
constexpr int64_t kMostBytes = 4 * kMostPixels + (int64_t{1} << 20);

Tensor new_image(int64_t height, int64_t width, const char* format, const std::string& name) {
  if (height < 1 || width < 1 || height > kMostPixels / width) {
    throw InvalidArgument("{}: a {} of {} x {} pixels is empty or too large", name, format, height, width);
  }
  return Tensor(DType::kU8, {height, width, 3});
}

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

#ifdef TESSERA_HAS_JPEG

// What libjpeg calls in case of an error: it must not return. No object with a destructor may live in a function that
// setjmp has returned to twice, so that the steps below are functions of their own.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void leave_jpeg(j_common_ptr common) {
  auto* errors = reinterpret_cast<JpegErrors*>(common->err);
  common->err->format_message(common, errors->message.data());
  std::longjmp(errors->back, 1);
}

// Warnings are about damaged data, of which libjpeg would make gray pixels.
void refuse_warning(j_common_ptr common, int level) {
  if (level < 0) leave_jpeg(common);
}

// Reads the header and begins; false with a message in `errors`.
bool start_jpeg(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::span<const std::byte> bytes) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool has_black = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = has_black ? JCS_CMYK : JCS_RGB;
  if (static_cast<int64_t>(jpeg.image_height) * jpeg.image_width <= kMostPixels) jpeg_start_decompress(&jpeg);
  return true;
}

bool read_jpeg_row(jpeg_decompress_struct& jpeg, JpegErrors& errors, uint8_t* row) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_read_scanlines(&jpeg, &row, 1);
  return true;
}

// Cyan, magenta, yellow and black; Adobe's programs write them inverted.
void to_rgb(const uint8_t* inks, int64_t width, bool is_inverted, uint8_t* out) {
  for (int64_t x = 0; x < width; ++x, inks += 4, out += 3) {
    for (int c = 0; c < 3; ++c) {
      const int ink = is_inverted ? inks[c] : 255 - inks[c];
      const int black = is_inverted ? inks[3] : 255 - inks[3];
      out[c] = static_cast<uint8_t>(ink * black / 255);
    }
  }
}

Tensor decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = leave_jpeg;
  errors.manager.emit_message = refuse_warning;
  struct Free {
    jpeg_decompress_struct& jpeg;
    ~Free() { jpeg_destroy_decompress(&jpeg); }
  } const free{jpeg};
  const auto require = [&](bool ok) {
    if (!ok) throw InvalidArgument("{}: a damaged JPEG: {}", name, errors.message.data());
  };
  require(start_jpeg(jpeg, errors, bytes));
  const auto width = static_cast<int64_t>(jpeg.image_width);
  Tensor image = new_image(static_cast<int64_t>(jpeg.image_height), width, "JPEG", name);
  auto* out = image.values<uint8_t>().data();
  std::vector<uint8_t> inks(jpeg.out_color_space == JCS_CMYK ? static_cast<size_t>(4 * width) : 0);
  for (JDIMENSION y = 0; y < jpeg.image_height; ++y, out += 3 * width) {
    require(read_jpeg_row(jpeg, errors, inks.empty() ? out : inks.data()));
    if (!inks.empty()) to_rgb(inks.data(), width, jpeg.saw_Adobe_marker != 0, out);
  }
  return image;
}

#else

Tensor decode_jpeg(std::span<const std::byte>, const std::string& name) {
  throw InvalidArgument(
      "{}: Tessera was built without libjpeg and reads no JPEG; install libjpeg-dev and configure again", name);
}

#endif

#ifdef TESSERA_HAS_PNG

struct PngInput {
  std::span<const std::byte> bytes;
  std::array<char, 160> message{};
};

void read_png_bytes(png_structp png, png_bytep out, size_t count) {
  auto& input = *static_cast<PngInput*>(png_get_io_ptr(png));
  if (input.bytes.size() < count) png_error(png, "it ends too early");
  std::memcpy(out, input.bytes.data(), count);
  input.bytes = input.bytes.subspan(count);
}

void leave_png(png_structp png, png_const_charp message) {
  auto& input = *static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(input.message.data(), input.message.size(), "%s", message);
  std::longjmp(*png_set_longjmp_fn(png, std::longjmp, sizeof(std::jmp_buf)), 1);
}

// Reads the header and asks for three bytes a pixel; false with a message in the input.
bool start_png(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  png_set_scale_16(png);
  png_set_expand(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_png_rows(png_structp png, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_image(png, rows);
  png_read_end(png, nullptr);
  return true;
}

Tensor decode_png(std::span<const std::byte> bytes, const std::string& name) {
  PngInput input{.bytes = bytes};
  struct Reader {
    png_structp png = nullptr;
    png_infop info = nullptr;
    ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  } reader;
  const auto ignore = [](png_structp, png_const_charp) {};
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, leave_png, ignore);
  check(reader.png != nullptr, "no memory for a PNG");
  reader.info = png_create_info_struct(reader.png);
  check(reader.info != nullptr, "no memory for a PNG");
  png_set_read_fn(reader.png, &input, read_png_bytes);
  const auto require = [&](bool ok) {
    if (!ok) throw InvalidArgument("{}: a damaged PNG: {}", name, input.message.data());
  };
  require(start_png(reader.png, reader.info));
  const auto height = static_cast<int64_t>(png_get_image_height(reader.png, reader.info));
  const auto width = static_cast<int64_t>(png_get_image_width(reader.png, reader.info));
  check_equal(static_cast<int64_t>(png_get_rowbytes(reader.png, reader.info)), 3 * width, "bytes of a PNG's row");
  Tensor image = new_image(height, width, "PNG", name);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < height; ++y) rows.push_back(image.values<uint8_t>().data() + 3 * width * y);
  require(read_png_rows(reader.png, rows.data()));
  return image;
}

#else

Tensor decode_png(std::span<const std::byte>, const std::string& name) {
  throw InvalidArgument("{}: Tessera was built without libpng and reads no PNG; install libpng-dev and configure again",
                        name);
}

#endif

uint32_t little_endian(std::span<const std::byte> bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

// BITMAPINFOHEADER and its longer successors, not compressed: 1, 4 and 8 bits with a palette, 24 and 32 bits.
Tensor decode_bmp(std::span<const std::byte> bytes, const std::string& name) {
  constexpr size_t kFileHeader = 14;
  constexpr size_t kInfoHeader = 40;
  const auto require = [&](bool ok, const char* what) {
    if (!ok) throw InvalidArgument("{}: a damaged BMP: {}", name, what);
  };
  require(bytes.size() >= kFileHeader + kInfoHeader, "it ends within its header");
  const uint32_t first = little_endian(bytes, 10, 4);
  const uint32_t header = little_endian(bytes, 14, 4);
  const auto width = static_cast<int64_t>(static_cast<int32_t>(little_endian(bytes, 18, 4)));
  const auto rows = static_cast<int64_t>(static_cast<int32_t>(little_endian(bytes, 22, 4)));
  const uint32_t bits = little_endian(bytes, 28, 2);
  const uint32_t compression = little_endian(bytes, 30, 4);
  const bool has_palette = bits == 1 || bits == 4 || bits == 8;
  if (header < kInfoHeader || (!has_palette && bits != 24 && bits != 32) || compression != 0) {
    throw InvalidArgument(
        "{}: a BMP of {} bits a pixel with compression {} and a header of {} bytes is not available; 1, 4, 8, 24 and "
        "32 "
        "bits without compression are",
        name, bits, compression, header);
  }
  const int64_t height = rows < 0 ? -rows : rows;  // negative: the first row is the upper one
  Tensor image = new_image(height, width, "BMP", name);
  const int64_t row_bytes = (width * bits + 31) / 32 * 4;
  require(first <= bytes.size() && row_bytes * height <= static_cast<int64_t>(bytes.size() - first),
          "it ends before its last pixel");
  uint32_t colors = has_palette ? little_endian(bytes, 46, 4) : 0;
  if (has_palette && (colors == 0 || colors > 1U << bits)) colors = 1U << bits;
  const size_t palette = kFileHeader + size_t{header};
  require(palette + size_t{4} * colors <= bytes.size(), "it ends within its palette");
  auto* out = image.values<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y) {
    const size_t row = first + static_cast<size_t>(row_bytes * (rows < 0 ? y : height - 1 - y));
    for (int64_t x = 0; x < width; ++x, out += 3) {
      size_t pixel = row + static_cast<size_t>(x) * bits / 8;
      if (has_palette) {
        const uint32_t shift = 8 - bits - static_cast<uint32_t>(x) * bits % 8;
        const uint32_t index = (little_endian(bytes, pixel, 1) >> shift) & ((1U << bits) - 1);
        require(index < colors, "a pixel has a color that the palette has not");
        pixel = palette + size_t{4} * index;
      }
      for (size_t c = 0; c < 3; ++c) out[c] = std::to_integer<uint8_t>(bytes[pixel + 2 - c]);
    }
  }
  return image;
}

}  // namespace

void require_image_size(int64_t size_bytes, const std::string& name) {
  if (size_bytes <= kMostBytes) return;
  throw InvalidArgument("{}: must have at most {} bytes to be read as an image, it has {}", name, kMostBytes,
                        size_bytes);
}

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name) {
  using namespace std::string_view_literals;
  require_image_size(std::ssize(bytes), name);
  if (begins_with(bytes, "\xff\xd8\xff"sv)) return decode_jpeg(bytes, name);
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n"sv)) return decode_png(bytes, name);
  if (begins_with(bytes, "BM"sv)) return decode_bmp(bytes, name);
  const std::pair<std::string_view, const char*> others[] = {
      {"GIF8"sv, "a GIF"}, {"RIFF"sv, "a WebP"}, {"II*\0"sv, "a TIFF"}, {"MM\0*"sv, "a TIFF"}};
  for (const auto& [magic, format] : others) {
    if (begins_with(bytes, magic))
      throw InvalidArgument("{}: {} is not available; JPEG, PNG and BMP are", name, format);
  }
  throw InvalidArgument("{} ({} bytes): is no JPEG, PNG or BMP", name, bytes.size());
}

}  // namespace tessera::data
