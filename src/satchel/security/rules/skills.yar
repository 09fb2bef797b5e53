// Payloads that are not plain text. The sentences of these rules are in yara.toml.

rule encoded_shell {
  strings:
    $a = "curl -fsSL http" base64 base64wide
    $b = "curl -sSL http" base64 base64wide
    $c = "wget -qO- http" base64 base64wide
    $d = "/bin/bash -c " base64 base64wide
    $e = "bash -i >& /dev/tcp/" base64 base64wide
    $f = "Invoke-Expression" base64 base64wide
    $g = "Invoke-WebRequest" base64 base64wide
    $h = "DownloadString(" base64 base64wide
    $i = "import subprocess" base64
    $j = "import socket" base64
    $k = "os.system(" base64
    $l = "child_process" base64
    $m = "powershell -" base64 base64wide
    $n = "exec(base64" base64
  condition:
    any of them
}

rule xored_address {
  strings:
    $a = "powershell.exe" xor(0x01-0x1f)
    $b = "powershell.exe" xor(0x21-0xff)
    $c = "/bin/bash -c" xor(0x01-0x1f)
    $d = "/bin/bash -c" xor(0x21-0xff)
    $e = "User-Agent: Mozilla" xor(0x01-0x1f)
    $f = "User-Agent: Mozilla" xor(0x21-0xff)
  condition:
    any of them
}

rule packed_program {
  strings:
    $upx1 = "UPX!"
    $upx2 = "UPX0"
    $upx3 = "This file is packed with the UPX"
    $themida = ".themida"
    $vmp = ".vmp0"
    $pyarmor = "__pyarmor__"
  condition:
    (uint32(0) == 0x464c457f or uint16(0) == 0x5a4d or uint32(0) == 0xfeedfacf or uint32(0) == 0xcffaedfe)
    and any of them
}

rule stealer_program {
  strings:
    $a = "Login Data" ascii wide
    $b = "Local State" ascii wide
    $c = "wallet.dat" ascii wide
    $d = "nkbihfbeogaeaoehlefnkodbefgpgknn" ascii wide
    $e = "logins.json" ascii wide
    $f = "\\Telegram Desktop\\tdata" ascii wide
    $g = "discord\\Local Storage\\leveldb" ascii wide
    $h = "login.keychain" ascii wide
    $i = "Exodus" ascii wide
    $j = "key4.db" ascii wide
  condition:
    (uint32(0) == 0x464c457f or uint16(0) == 0x5a4d or uint32(0) == 0xfeedfacf or uint32(0) == 0xcffaedfe or uint32(0) == 0xbebafeca)
    and 4 of them
}

rule miner_program {
  strings:
    $a = "stratum+tcp://" ascii wide
    $b = "stratum+ssl://" ascii wide
    $c = "cryptonight" ascii wide nocase
    $d = "randomx" ascii wide nocase
    $e = "donate-level" ascii wide
  condition:
    (uint32(0) == 0x464c457f or uint16(0) == 0x5a4d or uint32(0) == 0xfeedfacf or uint32(0) == 0xcffaedfe)
    and 2 of them
}

rule web_shell {
  strings:
    $php = /<\?php[^\x00]{0,400}(eval|assert|system|passthru|shell_exec)\s*\(\s*(base64_decode\s*\(\s*)?\$_(GET|POST|REQUEST|COOKIE)\s*\[/ nocase
    $jsp = /Runtime\.getRuntime\(\)\.exec\(\s*request\.getParameter/
    $asp = /eval\s*\(?\s*Request(\.Item)?\s*[\[(]\s*["']/ nocase
  condition:
    any of them
}

rule ransom_note {
  strings:
    $a = "your files have been encrypted" nocase ascii wide
    $b = "all your files are encrypted" nocase ascii wide
    $c = "decryption key" nocase ascii wide
    $d = "bitcoin" nocase ascii wide
    $e = ".onion" nocase ascii wide
    $f = "os.walk(" ascii
    $g = "Fernet(" ascii
    $h = "AES.new(" ascii
    $i = "vssadmin" nocase ascii wide
  condition:
    any of ($a, $b) and any of ($c, $d, $e) and any of ($f, $g, $h, $i)
}
