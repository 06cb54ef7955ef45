#include "serve/protocol/errors.h"

#include <unistd.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "backend/device_error.h"
#include "serve/log.h"
#include "serve/protocol/request.h"
#include "state/hf/hf_config.h"
#include "state/safetensors.h"
#include "state/state_file.h"
#include "train/batch.h"

namespace longhaul {

ErrorReply error_reply(std::exception_ptr thrown, const std::string& verb) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RequestError& error) {
    return {error.code, error.what(), error.facts};
  } catch (const DeviceError& error) {
    log_line("error", verb + ": " + error.what() + ". The engine ends, since a GPU is unusable to a process after an error of its driver");
    _exit(1);
  } catch (const BatchError& error) {
    return {"BadBatch", error.what(), {}};
  } catch (const WrongBaseError& error) {
    return {"WrongBase", error.what(), {}};
  } catch (const SafetensorsError& error) {
    return {"BadFile", error.what(), {}};
  } catch (const HfError& error) {
    return {"BadFile", error.what(), {}};
  } catch (const std::system_error& error) {
    return {"Io", error.what(), {}};
  } catch (const std::bad_alloc&) {
    return {"OutOfMemory", "not enough memory for " + verb, {}};
  } catch (const std::invalid_argument& error) {
    // The bad value comes from the request: a bad value in a file is already a BadFile here.
    return {"BadInput", error.what(), {}};
  } catch (const std::exception& error) {
    return {"Internal", verb + ": " + error.what(), {}};
  }
}

}  // namespace longhaul
