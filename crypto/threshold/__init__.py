"""Threshold encryption: sums of members' encrypted numbers, which t members open together and t − 1 cannot.

One round, from a founder's key to the sum::

    public_key, shares = deal(members=5, threshold=3, random_bytes=os.urandom)
    encryptor = Encryptor(public_key)
    plaintexts, randomizers = packing.pack(integers), encryptor.randomizers(count, os.urandom)
    ciphertexts = encryptor.encrypt(plaintexts, randomizers)
    statement = PlaintextStatement(public_key, chain_id, round, phase, sender, ciphertexts)
    proof = prove_plaintexts(statement, plaintexts, randomizers, os.urandom)
    sums = add(public_key, [ciphertexts, *those_of_others])
    decryption = Decryption(public_key, chain_id, round, phase, sums)
    post = decryption.share(shares[0], sender, os.urandom)
    posts = [post, *those_of_others]  # of t members, each of which decryption.validate let pass
    integers = packing.unpack(decryption.combine(posts), len(integers))
"""

from fedchain.crypto.threshold.dealer import deal as deal
from fedchain.crypto.threshold.decryption import Decryption as Decryption
from fedchain.crypto.threshold.decryption import SharePost as SharePost
from fedchain.crypto.threshold.decryption import decode_share_post as decode_share_post
from fedchain.crypto.threshold.encryption import Encryptor as Encryptor
from fedchain.crypto.threshold.encryption import add as add
from fedchain.crypto.threshold.encryption import decode_ciphertexts as decode_ciphertexts
from fedchain.crypto.threshold.encryption import encode_ciphertexts as encode_ciphertexts
from fedchain.crypto.threshold.packing import FixedPoint as FixedPoint
from fedchain.crypto.threshold.packing import Packing as Packing
from fedchain.crypto.threshold.plaintext_proof import PlaintextProof as PlaintextProof
from fedchain.crypto.threshold.plaintext_proof import PlaintextStatement as PlaintextStatement
from fedchain.crypto.threshold.plaintext_proof import are_plaintexts_known as are_plaintexts_known
from fedchain.crypto.threshold.plaintext_proof import decode_plaintext_proof as decode_plaintext_proof
from fedchain.crypto.threshold.plaintext_proof import plaintext_proof_size as plaintext_proof_size
from fedchain.crypto.threshold.plaintext_proof import prove_plaintexts as prove_plaintexts
from fedchain.crypto.threshold.public_key import KEY_BITS as KEY_BITS
from fedchain.crypto.threshold.public_key import KeyShare as KeyShare
from fedchain.crypto.threshold.public_key import ThresholdPublicKey as ThresholdPublicKey
from fedchain.crypto.threshold.public_key import decode_public_key as decode_public_key
from fedchain.crypto.threshold.sealing import Dealing as Dealing
from fedchain.crypto.threshold.sealing import deal_sealed as deal_sealed
from fedchain.crypto.threshold.sealing import decode_dealing as decode_dealing
from fedchain.crypto.threshold.sealing import open_share as open_share
