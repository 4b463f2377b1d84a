# Brings this host to the manifests beside this file, if they are in /srv/puppet:
# puppet apply --modulepath /srv/puppet/modules /srv/puppet/site.pp
class { 'berth':
  manifests => '/srv/puppet/manifests',
}
