#include "serve/errors.h"

#include <new>

#include "serve/request.h"
#include "state/state_file.h"
#include "train/batch.h"

namespace longhaul {

ErrorReply error_reply(std::exception_ptr thrown, const std::string& verb) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RequestError& error) {
    return {error.code, error.what(), error.facts};
  } catch (const BatchError& error) {
    return {"BadBatch", error.what(), {}};
  } catch (const WrongBaseError& error) {
    return {"WrongBase", error.what(), {}};
  } catch (const std::bad_alloc&) {
    return {"OutOfMemory", "not enough memory for " + verb, {}};
  } catch (const std::exception& error) {
    return {"BadInput", error.what(), {}};
  }
}

}  // namespace longhaul
