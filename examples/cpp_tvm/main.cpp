// Runs a library that `vta-byoc compile` wrote: run_library MODEL.so INPUT.bin OUTPUT.bin
//
// The library holds the model and the simulator; this program needs TVM's runtime alone, not the
// compiler and not Python. It is for models of one input and one result.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::Tensor;

constexpr int kPooled = 2;  // the allocator that keeps memory for the next run

// Memory of tensors that this program makes; aligned as vector instructions want it.
struct Allocator {
    void AllocData(DLTensor *tensor) {
        const size_t bytes = (tvm::ffi::GetDataSize(*tensor) + 63) / 64 * 64;
        tensor->data = std::aligned_alloc(64, bytes);
        if (tensor->data == nullptr) throw std::bad_alloc();
    }
    void FreeData(DLTensor *tensor) { std::free(tensor->data); }
};

Function function_of(const Module &module, const std::string &name) {
    const auto found = module->GetFunction(name);
    if (!found.has_value()) throw std::runtime_error("the library has no function " + name);
    return found.value();
}

// A text such as {"inputs": [{"name": "x", "shape": [1, 3, 224, 224], "dtype": "float32"}]}.
std::string signature_of(const Module &machine) {
    const Tensor text = function_of(machine, "vta_signature")().cast<Tensor>();
    const char *begin = static_cast<const char *>(text.data_ptr());
    return {begin, begin + text.numel()};
}

// The numbers between brackets behind "shape", and the text behind "dtype", of the first input.
std::vector<int64_t> shape_in(const std::string &signature) {
    std::vector<int64_t> shape;
    const auto begin = signature.find('[', signature.find("\"shape\"")) + 1;
    std::string numbers = signature.substr(begin, signature.find(']', begin) - begin);
    for (size_t at = 0; at < numbers.size();) {
        size_t used = 0;
        shape.push_back(std::stoll(numbers.substr(at), &used));
        at += used + 1;  // the comma, too
    }
    return shape;
}

DLDataType dtype_in(const std::string &signature) {
    const auto key = signature.find("\"dtype\"") + std::strlen("\"dtype\"");
    const auto begin = signature.find('"', key) + 1;
    return tvm::ffi::StringToDLDataType(
        signature.substr(begin, signature.find('"', begin) - begin));
}

std::vector<char> read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void run(char **paths) {
    const Module library = Module::LoadFromFile(paths[1]);
    const Module machine = function_of(library, "vm_load_executable")().cast<Module>();
    const DLDevice cpu{kDLCPU, 0};
    function_of(machine, "vm_initialization")(static_cast<int>(kDLCPU), 0, kPooled);

    const std::string signature = signature_of(machine);
    const std::vector<int64_t> shape = shape_in(signature);
    const tvm::ffi::ShapeView sizes(shape.data(), shape.size());
    const Tensor input = Tensor::FromNDAlloc(Allocator(), sizes, dtype_in(signature), cpu);
    const std::vector<char> bytes = read(paths[2]);
    const size_t wanted = tvm::ffi::GetDataSize(*input.GetDLTensorPtr());
    if (bytes.size() != wanted)
        throw std::runtime_error("the input file has " + std::to_string(bytes.size()) +
                                 " bytes; the model takes " + std::to_string(wanted) + ": " +
                                 signature);
    std::memcpy(input.data_ptr(), bytes.data(), wanted);

    const Tensor result = function_of(machine, "main")(input).cast<Tensor>();
    std::ofstream(paths[3], std::ios::binary)
        .write(static_cast<const char *>(result.data_ptr()),
               static_cast<std::streamsize>(tvm::ffi::GetDataSize(*result.GetDLTensorPtr())));
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::cerr << "usage: run_library MODEL.so INPUT.bin OUTPUT.bin\n";
        return 2;
    }
    try {
        run(argv);
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
