"""How good a run is: evaluation x task x measure.

========  ==========================  ===============  =====================================
name      model                       queries          database
========  ==========================  ===============  =====================================
``GG``    global                      of all silos     of all silos
``GL``    global                      a silo's own     its own; mean over silos
``PL``    a silo's own                a silo's own     its own; mean over silos
``PG``    a silo's own                of all silos     of all silos; mean over silos
``XS``    query: one silo's, items:   of all silos     each silo's own, merged into one
          each silo's own                              ranking; mean over the asking silos
========  ==========================  ===============  =====================================

GG and GL are only given for methods with a global model, PL and PG only for those with personal ones. XS is what a search
across silos does; where all silos deploy the global model it equals GG, found by adding the silos' counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.unsignedinteger[Any]]
