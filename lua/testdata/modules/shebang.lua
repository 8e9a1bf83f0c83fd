#!/usr/bin/env strata
return 7
