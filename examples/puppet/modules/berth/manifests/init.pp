# Brings a node to a directory of manifests.
#
# @param manifests   the source of the manifests, as of the type file, such as puppet:///modules/profile/berth
# @param directory   the folder of the host that gets them; its last part is the name in the label berth.converge
# @param service     whether the class sets the flags of the service berth-standalone and starts it
# @param flags       the flags of that service
# @param executable  the path of the program
# @param addr        the address of the server, unless it is the socket of the host
# @param timeout     how long to wait until services are healthy and jobs have succeeded
class berth (
  String           $manifests,
  String           $directory  = '/etc/berth/manifests',
  Boolean          $service    = true,
  String           $flags      = '',
  String           $executable = '/usr/bin/berth',
  Optional[String] $addr       = undef,
  String           $timeout    = '10m',
) {
  if $service {
    file { '/etc/berth/standalone.env':
      content => "BERTH_STANDALONE_FLAGS=${flags}\n",
      mode    => '0644',
      notify  => Service['berth-standalone'],
    }
    service { 'berth-standalone':
      ensure => running,
      enable => true,
      before => Exec['berth converge'],
    }
  }

  file { $directory:
    ensure  => directory,
    source  => $manifests,
    recurse => true,
    purge   => true,
    force   => true,
  }

  $command = [$executable, 'converge', $directory, '--prune'] + ($addr ? { undef => [], default => ['--addr', $addr] })

  # The check ends with 0 if nothing differs, with 2 if something does, and with 1 for a fault. Only 0 leaves out the
  # command, so a fault fails the command and its message is shown.
  exec { 'berth converge':
    command   => $command + ['--timeout', $timeout],
    unless    => [$command + ['--check']],
    returns   => [0, 2],
    timeout   => 0,
    logoutput => on_failure,
    require   => File[$directory],
  }
}
