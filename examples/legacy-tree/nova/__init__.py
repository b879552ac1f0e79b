"""A cloud controller of 2012, cut down to the service that makes backups."""

import gettext

gettext.install('nova', unicode=1)
