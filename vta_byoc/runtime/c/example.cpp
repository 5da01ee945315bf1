// A bundle from C++: example_cpp FOLDER INPUT.bin OUTPUT.bin, for models of one input and output.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "vta_runtime.h"
#include "vta_sim.h"

namespace {

// A model on the functional simulator; on a board, only `sim_` is another driver.
class Model {
  public:
    explicit Model(const std::string &folder) : folder_(folder) {
        vta_source source;
        vta_info info;
        vta_driver driver;
        vta_folder(&source, folder_.c_str());
        check(vta_look(&source, &info, &error_));
        host_.resize(info.host_bytes);
        board_.resize(vta_sim_bytes(&info.machine, info.device_bytes));
        vta_sim *sim = vta_sim_init(&info.machine, info.device_bytes, board_.data(), board_.size());
        if (sim == nullptr) throw std::runtime_error("the simulator has no such machine");
        vta_sim_driver(sim, &driver);
        check(vta_open(&model_, &source, &driver, host_.data(), host_.size(), &error_));
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;
    ~Model() { vta_close(model_); }

    std::vector<char> run(const std::vector<char> &input) {
        if (vta_input_count(model_) != 1 || vta_output_count(model_) != 1)
            throw std::runtime_error("this example runs models of one input and one output");
        if (input.size() != vta_input(model_, 0)->bytes)
            throw std::runtime_error("the input takes " +
                                     std::to_string(vta_input(model_, 0)->bytes) + " bytes");
        std::vector<char> output(vta_output(model_, 0)->bytes);
        const void *in = input.data();
        void *out = output.data();
        check(vta_run(model_, &in, &out, 60000, &error_));
        return output;
    }

  private:
    void check(vta_status status) {
        if (status != VTA_OK) throw std::runtime_error(error_.message);
    }

    std::string folder_;
    std::vector<char> host_, board_;
    vta_error error_ = {};
    vta_model *model_ = nullptr;
};

std::vector<char> read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::cerr << "usage: example_cpp FOLDER INPUT.bin OUTPUT.bin\n";
        return VTA_E_ARGUMENT;
    }
    try {
        const std::vector<char> output = Model(argv[1]).run(read(argv[2]));
        std::ofstream(argv[3], std::ios::binary).write(output.data(), output.size());
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
